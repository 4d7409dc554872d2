"""The figure of mistakes: each against one fair rank, seed by seed, and three accounts of the fair runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import config as settings
from ketscale.analysis import figures, tables
from tests.unit import records_factory as factory

STEP_S = {
    ("cpu-n1r1t1", "timing"): 0.010,
    ("mpi-n1r2t1", "timing"): 0.006,
    ("mpi-n1r2t1", "unsharded"): 0.011,
}


def config() -> dict[str, Any]:
    axes = factory.point(simulator="fused")
    points = [{"backend": place, "protocol": protocol} for place, protocol in STEP_S]
    study = {"kind": "mistakes", "question": "?", "axes": axes, "points": points}
    made = factory.small_config({"mistakes": study})
    made["protocols"]["unsharded"] = {**made["protocols"]["timing"], "mistake": "unsharded"}
    return made


def test_each_mistake_is_compared_with_one_fair_rank(tmp_path: Path) -> None:
    made = config()
    settings.check(made)
    # Seed by seed the ratio is the same, whatever the seeds' own times are.
    factory.write_all(
        made, tmp_path, lambda run: {"step_s": STEP_S[run.place, run.protocol] * (1 + 0.2 * run.seed)}
    )
    tables.collect(made, tmp_path, tmp_path / "tables", partial=False)
    figures.draw(made, tmp_path / "tables", tmp_path / "figures")
    drawn = pd.read_csv(tmp_path / "figures/mistakes.csv").set_index("arm")
    assert drawn["slowdown"].to_dict() == pytest.approx(
        {"cpu-n1r1t1": 1.0, "mpi-n1r2t1": 0.6, "mpi-n1r2t1, unsharded": 1.1}
    )
    assert drawn["slowdown_high"]["mpi-n1r2t1"] == pytest.approx(0.6)
    # The factory's runs: 60 steps in 10 s, 1.6 s before them.
    assert drawn["step_with_first_s"]["cpu-n1r1t1"] == pytest.approx(10 / 60)
    assert drawn["step_with_start_s"]["cpu-n1r1t1"] == pytest.approx(11.6 / 60)
    assert pd.isna(drawn["step_with_start_s"]["mpi-n1r2t1, unsharded"])
