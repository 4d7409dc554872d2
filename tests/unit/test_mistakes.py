"""The figure of mistakes: each against one fair rank, seed by seed, and three accounts of the fair runs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from ketscale import config as settings
from ketscale import grid
from ketscale.analysis import figures, tables
from ketscale.errors import UserError
from ketscale.jobs import session
from ketscale.measure import host
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


def draw(made: dict[str, Any], root: Path, change: factory.Change) -> pd.DataFrame:
    factory.write_all(made, root, change)
    tables.collect(made, root, root / "tables", partial=True)
    figures.draw(made, root / "tables", root / "figures")
    return pd.read_csv(root / "figures/mistakes.csv")


def test_each_mistake_is_compared_with_one_fair_rank(tmp_path: Path) -> None:
    made = config()
    settings.check(made)

    # Seed by seed the ratio is the same, whatever the seeds' own times are.
    def change(run: grid.Run) -> dict[str, Any]:
        return {"step_s": STEP_S[run.place, run.protocol] * (1 + 0.2 * run.seed)}

    drawn = draw(made, tmp_path, change).set_index("arm")
    assert drawn["slowdown"].to_dict() == pytest.approx(
        {"cpu-n1r1t1": 1.0, "mpi-n1r2t1": 0.6, "mpi-n1r2t1, unsharded": 1.1}
    )
    assert drawn["slowdown_high"]["mpi-n1r2t1"] == pytest.approx(0.6)
    # The factory's runs: 60 steps in 10 s, 1.6 s before them.
    assert drawn["account_step_with_first_s"]["cpu-n1r1t1"] == pytest.approx(10 / 60)
    assert drawn["account_step_with_start_s"]["cpu-n1r1t1"] == pytest.approx(11.6 / 60)
    assert drawn["fair"].to_dict() == {
        "cpu-n1r1t1": True, "mpi-n1r2t1": True, "mpi-n1r2t1, unsharded": False
    }  # fmt: skip


def test_busy_runs_do_not_count_where_others_were_quiet(tmp_path: Path) -> None:
    def change(run: grid.Run) -> dict[str, Any]:
        changes: dict[str, Any] = {"step_s": STEP_S[run.place, run.protocol]}
        if run.seed == 2 and run.place == "mpi-n1r2t1":
            changes["step_s"] *= 10
            changes["quiet"] = {"quiet": False, "others_share": 0.5, "steal_share": 0.0}
        return changes

    drawn = draw(config(), tmp_path, change).set_index("arm")
    assert drawn["slowdown_high"]["mpi-n1r2t1"] == pytest.approx(0.6)
    assert drawn["account_step_s"]["mpi-n1r2t1"] == pytest.approx(0.006)


def test_a_mistake_that_a_scheduler_prevents_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    with pytest.raises(UserError, match=r"oversubscribed.* may use 1 core\(s\) for its 1 thread"):
        host.set_threads_of_all_cores(1)
    run = grid.runs(config())[0]
    bound_apart = SimpleNamespace(local_rank=0, gather=lambda cores: [cores, [4]])
    with pytest.raises(UserError, match="one-device wants every rank on the same cores"):
        session._bind(run, {"timed": True, "mistake": "one-device"}, bound_apart, 2)  # type: ignore[arg-type]


def test_nothing_is_drawn_without_the_fair_rank(tmp_path: Path) -> None:
    def change(run: grid.Run) -> dict[str, Any] | None:
        return None if run.place == "cpu-n1r1t1" else {}

    factory.write_all(config(), tmp_path, change)
    tables.collect(config(), tmp_path, tmp_path / "tables", partial=True)
    figures.draw(config(), tmp_path / "tables", tmp_path / "figures")
    assert (tmp_path / "figures/mistakes.csv").read_text().strip() in ("", '""')
