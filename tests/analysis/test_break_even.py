"""The figure that says from how much work further ranks pay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis.kinds.break_even import crossing
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from tests import records_factory as factory

# A step of batch * 2 ms on one rank; on two half of that and 2 ms of talking.
BATCHES = (1, 2, 4, 8)


def study(**axes: Any) -> dict[str, Any]:
    usual = factory.point(simulator="fused", batch=list(BATCHES), backend=["cpu-n1r1t1", "mpi-n1r2t1"])
    return {"pays": {"kind": "break-even", "question": "?", "axes": {**usual, **axes}}}


def change(run: Run) -> dict[str, Any]:
    alone = 0.002 * run.batch
    return {"step_s": alone if run.ranks == 1 else alone / 2 + 0.002}


def drawn(config: Config, results: Path) -> pd.DataFrame:
    factory.write_all(config, results, change)
    factory.draw(config, results)
    return pd.read_csv(results / "figures/break-even.csv").sort_values("work_s")


def test_the_figure_has_speedup_over_work_and_where_it_crosses_one(tmp_path: Path) -> None:
    found = drawn(factory.small_config(study()), tmp_path)
    assert found["work_s"].tolist() == pytest.approx([0.001 * batch for batch in BATCHES])
    assert found["speedup_same"].tolist() == pytest.approx([2 / 3, 1.0, 4 / 3, 1.6])
    # At 2 ms of work a rank both take the same.
    assert found["pays_from_s"].tolist() == pytest.approx([0.002] * 4)


def test_batches_and_simulators_are_along_a_line_and_layouts_beside_one_another(tmp_path: Path) -> None:
    found = drawn(
        factory.small_config(
            study(simulator=["fused", "default.qubit"], backend=["cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1"])
        ),
        tmp_path,
    )
    assert set(found["line"]) == {"cpu-n1r1t2", "mpi-n1r2t1"}


def points(*pairs: tuple[float, float]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["work_s", "speedup_same"])


@pytest.mark.parametrize(
    "found, expected",
    [
        (points((1, 0.5), (100, 1.5)), 10.0),
        (points((1, 1.2), (100, 1.5)), 1.0),
        (points((1, 0.5), (100, 0.9)), None),
        (points((1, 1.5), (10, 0.9), (1000, 1.1)), 100.0),
    ],
    ids=["between", "always", "never", "the last crossing counts"],
)
def test_the_crossing_is_found_on_logarithmic_work(found: pd.DataFrame, expected: float | None) -> None:
    assert crossing(found) == (None if expected is None else pytest.approx(expected))


def test_one_layout_is_refused() -> None:
    with pytest.raises(UserError, match="compares layouts, but has only one"):
        analysis.of(factory.small_study(study(backend="cpu-n1r1t1")))


def test_points_of_equal_work_on_both_sides_of_one(tmp_path: Path) -> None:
    assert crossing(points((1.0, 2.0), (1.0, 0.5))) == pytest.approx(1.0)
    config = factory.small_config(study(batch=8, simulator=["fused", "default.qubit"], seed=[0, 1, 2]))

    def gains(run: Run) -> dict[str, Any]:
        return {
            "step_s": 0.01
            / (2.0 if run.simulator == "fused" and run.ranks == 2 else 1.0 if run.ranks == 1 else 0.5)
        }

    factory.write_all(config, tmp_path, gains)
    factory.collect(config, tmp_path)
    said = pd.read_csv(tmp_path / "tables/answers.csv")["answer"].iloc[0]
    assert "begin to be faster on average at about 5 ms, between 5 ms (default.qubit: 0.5 times" in said
