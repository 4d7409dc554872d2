"""The figure that says from how much work further ranks pay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import config as settings
from ketscale import grid
from ketscale.analysis import figures, tables
from ketscale.analysis.figures.break_even import crossing
from tests.unit import records_factory as factory

# A step of batch * 2 ms on one rank; on two half of that and 2 ms of talking.
BATCHES = (1, 2, 4, 8)


def config() -> dict[str, Any]:
    axes = factory.point(simulator="fused", batch=list(BATCHES), backend=["cpu-n1r1t1", "mpi-n1r2t1"])
    return factory.small_config({"pays": {"kind": "break-even", "question": "?", "axes": axes}})


def change(run: grid.Run) -> dict[str, Any]:
    alone = 0.002 * run.batch
    return {"step_s": alone if run.ranks == 1 else alone / 2 + 0.002}


def test_the_figure_has_speedup_over_work_and_where_it_crosses_one(tmp_path: Path) -> None:
    settings.check(config())
    factory.write_all(config(), tmp_path, change)
    tables.collect(config(), tmp_path, tmp_path / "tables", partial=False)
    figures.draw(config(), tmp_path / "tables", tmp_path / "figures")
    drawn = pd.read_csv(tmp_path / "figures/break-even.csv").sort_values("work_s")
    assert drawn["work_s"].tolist() == pytest.approx([0.001 * batch for batch in BATCHES])
    assert drawn["speedup_same"].tolist() == pytest.approx([2 / 3, 1.0, 4 / 3, 1.6])
    # At 2 ms of work a rank both take the same.
    assert drawn["pays_from_s"].tolist() == pytest.approx([0.002] * 4)


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


def test_one_place_is_refused() -> None:
    made = config()
    made["studies"]["pays"]["axes"]["backend"] = "cpu-n1r1t1"
    with pytest.raises(settings.UserError, match="compares places, but has only one"):
        settings.check(made)
