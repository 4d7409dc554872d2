"""One object a backend: what launchers, checks and tables read of it, without torch."""

import subprocess
import sys

import pytest
import torch

from ketscale.errors import UserError
from ketscale.parallel.world import World, require_gpu
from ketscale.training import lbfgs
from tests.toys import run_at, trainer, without_dropout


@pytest.mark.parametrize("where, instead", [("gpu-n1r1t1", "use cpu,"), ("ddp-n1r2t1", "use ddp-cpu,")])
def test_a_missing_gpu_names_the_backend_that_needs_none(where, instead, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=instead):
        require_gpu(run_at(where), 0)


@pytest.mark.parametrize(
    "modules, absent",
    [
        ("ketscale.grid.backend, ketscale.process", ("torch", "numpy", "psutil", "yaml")),
        (
            "ketscale.config, ketscale.files",
            ("torch", "ketscale.measure", "ketscale.problems", "ketscale.jobs"),
        ),
        (
            "ketscale.measure.host, ketscale.parallel.single, ketscale.parallel.ddp, ketscale.training.loop",
            ("ketscale.jobs", "ketscale.analysis", "benchmarks"),
        ),
    ],
)
def test_imports_point_down(modules, absent):
    script = f"import sys, {modules}; print(*(m for m in {absent} if m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.strip() == "", result.stdout + result.stderr


class Elsewhere(World):
    """A second rank whose first rank is at another point."""

    rank, ranks = 1, 2

    def add(self, values: torch.Tensor) -> None:
        assert not values.any(), "all but rank 0 add zeros"
        values += 0.5


def test_lbfgs_says_so_where_a_rank_leaves_the_trajectory():
    stepper = trainer(without_dropout(), {"steps": 1}).stepper

    def evaluate() -> float:
        return float(stepper.differentiate(torch.arange(37), 0).sums)

    with pytest.raises(RuntimeError, match="another point on rank 1 than on rank 0"):
        lbfgs.minimise(stepper.parameters, evaluate, lambda: True, 3, Elsewhere())
