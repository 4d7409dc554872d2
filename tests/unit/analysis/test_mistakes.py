"""The figure of mistakes: each against one fair rank, seed by seed, and three accounts of the fair runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ketscale import analysis
from ketscale.analysis import verdicts
from ketscale.analysis.kinds.kind import Answer
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.words import duration
from tests import records_factory as factory
from tests.record_maker import beside
from tests.sentences import answers_of, faults

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


def told(results: Path, change: factory.Change) -> Answer:
    """The answer of the study, which keeps the limits of sentences."""
    factory.write_all(config(), results, change)
    (answer,) = answers_of(config(), results).values()
    assert not faults(answer)
    return answer


def test_each_mistake_is_compared_with_one_fair_rank(tmp_path: Path) -> None:
    # Seed by seed the ratio is the same, whatever the seeds' own times are.
    def change(run: Run) -> dict[str, Any]:
        return {"step_s": STEP_S[run.layout, run.protocol] * (1 + 0.2 * run.seed)}

    answer = told(tmp_path, change)
    rows = {row.point: row for row in answer.rows}
    assert {name: row.effect and row.effect.value for name, row in rows.items()} == {
        "one core": None, "two MPI ranks": pytest.approx(0.6), "two MPI ranks (unsharded)": pytest.approx(1.1)
    }  # fmt: skip
    assert {row.verdict for row in rows.values() if row.beside} == {verdicts.NOT_SLOWER, verdicts.SLOWER}
    assert answer.effect and (answer.verdict, answer.effect.value) == (verdicts.SLOWER, pytest.approx(1.1))
    # The factory's runs: all steps in 10 s, 1.6 s before them.
    steps = config().protocols["timing"].steps
    assert steps
    assert rows["one core"].more["with the first step"] == duration(10 / steps)
    assert rows["two MPI ranks"].more["with start and data"] == duration(11.6 / steps)
    assert "with start and data" not in rows["two MPI ranks (unsharded)"].more


def test_busy_runs_do_not_count_where_others_were_quiet(tmp_path: Path) -> None:
    def change(run: Run) -> dict[str, Any]:
        changes: dict[str, Any] = {"step_s": STEP_S[run.layout, run.protocol]}
        if run.seed == 2 and run.layout == "mpi-n1r2t1":
            changes["step_s"] *= 10
            changes["quiet"] = beside(others_share=0.5)
        return changes

    row = next(row for row in told(tmp_path, change).rows if row.point == "two MPI ranks")
    # Two quiet seeds have no interval.
    assert row.effect and row.effect.value == pytest.approx(0.6) and row.effect.high is None
    assert row.verdict == verdicts.FEW and row.more["left out"] == "1 busy"


def test_each_batch_has_a_fair_rank_of_its_own(tmp_path: Path) -> None:
    made = given()
    made["studies"]["mistakes"]["axes"]["batch"] = [32, 128]
    config = analysis.of(made)
    factory.write_all(config, tmp_path, lambda run: {"step_s": run.batch * STEP_S[run.layout, run.protocol]})
    (answer,) = answers_of(config, tmp_path).values()
    effects = {row.point: row.effect.value for row in answer.rows if row.effect}
    assert effects == {
        f"two MPI ranks ({wrong}batch {batch})": pytest.approx(effect)
        for batch in (32, 128)
        for wrong, effect in (("", 0.6), ("unsharded, ", 1.1))
    }
    assert not faults(answer)


def test_what_works_sample_by_sample_is_no_fair_rank() -> None:
    made = given()
    made["simulators"]["fused-loop"] = {**made["simulators"]["fused"], "batching": "loop"}
    alone = made["studies"]["mistakes"]["points"][0]
    alone["simulator"] = ["fused", "fused-loop"]
    assert analysis.of(made).runs
    alone["simulator"] = ["fused-loop", "fused"]
    refusal = r"^studies\.mistakes: .*fused-loop works sample by sample; put fused before it$"
    with pytest.raises(UserError, match=refusal):
        analysis.of(made)
