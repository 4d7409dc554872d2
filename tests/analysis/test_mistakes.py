"""The figure of mistakes: each against one fair rank, seed by seed, and three accounts of the fair runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from tests import records_factory as factory
from tests.record_maker import beside

STEP_S = {
    ("cpu-n1r1t1", "timing"): 0.010,
    ("mpi-n1r2t1", "timing"): 0.006,
    ("mpi-n1r2t1", "unsharded"): 0.011,
}


def given() -> dict[str, Any]:
    axes = factory.point(simulator="fused")
    points = [{"backend": layout, "protocol": protocol} for layout, protocol in STEP_S]
    study = {"kind": "mistakes", "question": "?", "axes": axes, "points": points}
    made = factory.small_study({"mistakes": study})
    unsharded = {**made["protocols"]["timing"], "mistake": "unsharded"}
    return {**made, "protocols": {**made["protocols"], "unsharded": unsharded}}


def config() -> Config:
    return analysis.of({**given(), "partial": True})


def draw(results: Path, change: factory.Change) -> pd.DataFrame:
    factory.write_all(config(), results, change)
    factory.draw(config(), results)
    return pd.read_csv(results / "figures/mistakes.csv")


def test_each_mistake_is_compared_with_one_fair_rank(tmp_path: Path) -> None:
    # Seed by seed the ratio is the same, whatever the seeds' own times are.
    def change(run: Run) -> dict[str, Any]:
        return {"step_s": STEP_S[run.layout, run.protocol] * (1 + 0.2 * run.seed)}

    drawn = draw(tmp_path, change).set_index("arm")
    assert drawn["slowdown"].to_dict() == pytest.approx(
        {"cpu-n1r1t1": 1.0, "mpi-n1r2t1": 0.6, "mpi-n1r2t1, unsharded": 1.1}
    )
    assert 0.6 < drawn["slowdown_high"]["mpi-n1r2t1"] < 0.61
    said = pd.read_csv(tmp_path / "tables/answers.csv").iloc[0]
    assert "1 of 1 misconfigurations surely take longer than one fair rank" in said["answer"]
    assert "2 MPI ranks (unsharded) take the longest, 1.1 times as long" in said["answer"]
    assert "fair, 2 MPI ranks take 0.6 times as long" in said["answer"]
    assert (said["verdict"], said["effect"]) == ("slower", pytest.approx(1.1))
    # The factory's runs: all steps in 10 s, 1.6 s before them.
    steps = config().protocols["timing"].steps
    assert steps
    assert drawn["account_step_with_first_s"]["cpu-n1r1t1"] == pytest.approx(10 / steps)
    assert drawn["account_step_with_start_s"]["cpu-n1r1t1"] == pytest.approx(11.6 / steps)
    assert drawn["fair"].to_dict() == {
        "cpu-n1r1t1": True, "mpi-n1r2t1": True, "mpi-n1r2t1, unsharded": False
    }  # fmt: skip


def test_busy_runs_do_not_count_where_others_were_quiet(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any]:
        changes: dict[str, Any] = {"step_s": STEP_S[run.layout, run.protocol]}
        if run.seed == 2 and run.layout == "mpi-n1r2t1":
            changes["step_s"] *= 10
            changes["quiet"] = beside(others_share=0.5)
        return changes

    drawn = draw(tmp_path, change).set_index("arm")
    assert drawn["slowdown"]["mpi-n1r2t1"] == pytest.approx(0.6)
    # Two quiet seeds have no interval.
    assert pd.isna(drawn["slowdown_high"]["mpi-n1r2t1"])
    assert drawn["account_step_s"]["mpi-n1r2t1"] == pytest.approx(0.006)


def test_a_study_without_a_mistake_is_refused() -> None:
    made = given()
    made["studies"]["mistakes"]["points"] = made["studies"]["mistakes"]["points"][:2]
    with pytest.raises(UserError, match=r"^studies\.mistakes: .* needs a protocol that sets mistake"):
        analysis.of(made)


def test_nothing_is_drawn_without_the_fair_rank(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any] | None:
        return None if run.layout == "cpu-n1r1t1" else {}

    factory.write_all(config(), tmp_path, change)
    factory.draw(config(), tmp_path)
    assert (tmp_path / "figures/mistakes.csv").read_text().strip() in ("", '""')
