"""Invariant: the loss trajectory of the first 20 steps is the same under every simulator."""

import numpy as np
import pytest
import torch

from ketscale.problems.registry import read_config
from ketscale.simulators.factory import build_simulator
from tests.process.parallel.worlds import ROOT
from tests.toys import classification, trainer

SIMULATORS = read_config(ROOT / "config.yaml").simulators
LIMIT = {torch.float64: 1e-9, torch.float32: 1e-3}


def losses(name, dtype):
    problem = classification(dtype=dtype)
    problem.model.simulator = build_simulator(name, SIMULATORS[name], torch.device("cpu"))
    loop = trainer(problem, {"steps": 20}, batch=3)
    loop.run()
    return loop.losses


@pytest.fixture(scope="module")
def exact():
    return losses("default.qubit", torch.float64)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float64) for name in SIMULATORS),
        ("default.qubit", torch.float32),
        ("fused", torch.float32),
    ],
    ids=str,
)
def test_every_simulator_trains_the_same(name, dtype, exact):
    result = losses(name, dtype)
    assert len(result) == 20 and len(set(result)) == 20
    np.testing.assert_allclose(result, exact, rtol=LIMIT[dtype], atol=0)
