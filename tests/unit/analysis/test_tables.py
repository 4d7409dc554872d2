"""Collecting records: what is trusted, what is named and refused, what the tables then hold, and that their files lose nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace

from ketscale import analysis
from ketscale.analysis import columns
from ketscale.analysis.columns import TABLES, Trained
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import supervise
from ketscale.measure.form import Rank
from tests import records_factory as factory
from tests.record_maker import typed

STRONG = {"kind": "strong", "question": "?", "axes": factory.point(backend=["cpu-n1r1t1", "mpi-n1r2t1"])}
ACCURACY = {
    "kind": "accuracy",
    "question": "?",
    "axes": factory.point(protocol="quality"),
    "points": [{}, {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"}],
}
CONFIG = factory.small_config({"strong": STRONG, "accuracy": ACCURACY})
PARTIAL = factory.partial(CONFIG)
RUNS = sorted(CONFIG.runs)
FIRST = next(run for run in RUNS if run.protocol == "timing")


def collected(results: Path, config: Config = CONFIG) -> dict[str, pd.DataFrame]:
    """The tables, with text for what is missing."""
    return {
        name: frame.astype(object).fillna("")
        for name, frame in factory.collect(config, results).tables.items()
    }


def only(run: Run, **changes: Any) -> factory.Change:
    """Changes to the record of one run."""
    return lambda other: changes if other == run else {}


def state(found: dict[str, pd.DataFrame], run: Run) -> tuple[str, str]:
    """The run's state and the reason."""
    (row,) = (row for row in found["runs"].to_dict("records") if Run.of(row) == run)
    return row["status"], row["why"]


def used(found: dict[str, pd.DataFrame], study: str = "strong") -> list[tuple[str, int, int, int]]:
    """The layout of each point of a study of speed, and how many seeds are in its time, failed, and have no record."""
    rows = found["speed"][found["speed"]["study"] == study]
    return [tuple(row) for row in rows[["layout", "n", "failed", "absent"]].values.tolist()]


ALL = [("cpu-n1r1t1", 3, 0, 0), ("mpi-n1r2t1", 3, 0, 0)]


def test_a_complete_study_gives_one_row_a_run_and_every_table(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    result = collected(tmp_path)
    assert {path.stem for path in (tmp_path / "tables").glob("*.csv")} == {*TABLES}
    assert len(result["runs"]) == len(RUNS) and {*result["runs"]["status"]} == {"completed"}
    assert {*result["runs"]["studies"]} == {"strong", "accuracy"}
    assert used(result) == ALL


def test_missing_runs_stop_the_collection_and_both_ways_on_are_named(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path, lambda run: None)
    with pytest.raises(UserError) as raised:
        collected(tmp_path)
    text = str(raised.value)
    assert text.startswith("12 of 12 runs cannot be used:\n12 missing: not run yet\n")
    assert "such as results/runs/digits/mlp/" in text
    assert "--config partial=true" in text
    assert not (tmp_path / "tables").exists()


def test_a_partial_collection_shows_what_is_missing_and_why_it_failed(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path, lambda run: None if run.seed == 1 else {})
    note = tmp_path / FIRST.folder.replace("seed0", "seed1") / supervise.NOTE
    supervise.leave_note(note.parent, "no MPI library found")
    result = collected(tmp_path, PARTIAL)
    failed = Run.parse(str(note.parent))
    assert state(result, failed) == ("missing", "no MPI library found")
    other = next(run for run in RUNS if run.seed == 1 and run != failed)
    assert state(result, other) == ("missing", "not run yet")
    assert used(result) == [("cpu-n1r1t1", 2, 0, 1), ("mpi-n1r2t1", 2, 0, 1)]
    assert len(result["runs"]) == len(RUNS) and (result["quality"]["n"] == 2).all()
    assert result["answers"]["notes"].str.contains("Of 6 runs, 2 missing.").all()


def test_a_record_of_another_config_is_stale(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    arguments = dict(CONFIG.raw)
    timing = {**arguments["protocols"]["timing"], "learning_rate": 0.002}
    changed = analysis.of({**arguments, "protocols": {**arguments["protocols"], "timing": timing}})
    with pytest.raises(UserError, match="6 stale"):
        collected(tmp_path, changed)
    result = collected(tmp_path, factory.partial(changed))
    assert state(result, FIRST)[0] == "stale" and result["speed"].empty and len(result["quality"]) == 2
    assert result["answers"].set_index("study")["verdict"].loc["strong"] == "missing"


def resumed(results: Path) -> None:
    path = results / FIRST.path
    content = json.loads(path.read_text())
    del content["digest"]
    path.write_text(json.dumps(factory.sealed({**content, "resumed": 1})))


def copied(results: Path) -> None:
    other = next(run for run in RUNS if run.seed == 1 and run.protocol == FIRST.protocol)
    (results / FIRST.path).write_bytes((results / other.path).read_bytes())


@pytest.mark.parametrize(
    ("change", "damage", "status", "why"),
    [
        ({}, resumed, "missing", "it is timed, but was stopped in between"),
        ({"features_hash": "0" * 64}, None, "stale", "other features"),
        ({}, copied, "refused", "the axes in the record differ from those in its path"),
        ({"losses": [9.0] * 20}, None, "refused", "losses"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_trusted_is_named_and_in_no_study(
    change: dict[str, Any], damage: Any, status: str, why: str, tmp_path: Path
) -> None:
    run = next(run for run in RUNS if run.backend == "mpi") if "losses" in change else FIRST
    factory.write_all(CONFIG, tmp_path, only(run, **change))
    if damage:
        damage(tmp_path)
    result = collected(tmp_path, PARTIAL)
    assert state(result, run)[0] == status and why in state(result, run)[1]
    with pytest.raises(UserError, match=f"1 {status}"):
        collected(tmp_path)
    assert used(result) == [
        (layout, n - (layout == run.layout), 0, int(layout == run.layout)) for layout, n, *_ in ALL
    ]


def test_diverged_and_out_of_memory_runs_are_results(tmp_path: Path) -> None:
    timed = [run for run in RUNS if run.layout == "cpu-n1r1t1" and run.protocol == "timing"]
    changes = {
        timed[0]: {"status": "diverged", "reason": "loss is NaN at step 7"},
        timed[1]: {"status": "out_of_memory", "reason": "17 GB asked for"},
    }
    factory.write_all(CONFIG, tmp_path, lambda run: changes.get(run, {}))
    result = collected(tmp_path)
    assert state(result, timed[0]) == ("diverged", "loss is NaN at step 7")
    assert state(result, timed[1]) == ("out_of_memory", "17 GB asked for")
    assert used(result) == [("cpu-n1r1t1", 1, 2, 0), ALL[1]]


@pytest.mark.parametrize(
    "ranks, shared", [([False, False], False), ([False, True, None], True), ([False, None], None)]
)
def test_it_is_shown_that_threads_shared_cores(ranks: list[bool | None], shared: bool | None) -> None:
    result = typed(factory.record(CONFIG, FIRST))
    used = [Rank(peak_rss_bytes=1, peak_device_bytes=None, shared_cores=rank) for rank in ranks]
    record = replace(result, machine=replace(result.machine, ranks=used))
    (row,) = columns.RUNS.of([Trained(record, CONFIG.settings(FIRST))], CONFIG)
    assert row["shared_cores"] is shared


def test_a_seed_that_another_study_ran_is_not_counted_as_absent_or_present(tmp_path: Path) -> None:
    axes = factory.point(simulator=["fused", "default.qubit"], seed=0)
    config = factory.small_config(
        {"strong": STRONG, "one": {"kind": "simulator", "question": "?", "axes": axes}}
    )
    factory.write_all(config, tmp_path)
    assert {absent for *_, absent in used(collected(tmp_path, config), "one")} == {0}


def test_a_value_of_no_column_is_no_row() -> None:
    with pytest.raises(ValueError, match="'spead'"):
        columns.SPEED.csv([{"study": "strong", "spead": 1.0}], CONFIG)


HARD = {
    "studies": "a b", "why": 'said "no",\nand\ttwice', "precision": "1e5", "features": "NA", "mistake": "null",
    "busy_why": " ", "gpus": "nan", "mpi_library": "1_2", "code": "007", "step_s": 0.1 + 0.2, "epoch_s": 5e-324,
    "train_s": 1.7976931348623157e308, "seed": 2**53 + 1, "quiet": True, "timed": False,
}  # fmt: skip


@pytest.mark.parametrize("rows", [[HARD], [HARD, {"seed": 1}], [{"seed": 1}, {"quiet": False}], []])
def test_a_file_of_a_table_loses_nothing_of_hard_values(rows: list[dict[str, Any]]) -> None:
    """Names that are numbers or words for nothing, numbers at the ends of what there is, and rows that lack a value or have NaN."""
    table, nan = columns.RUNS, {"fit_s": float("nan"), "span_data_s": float("nan")}
    result = table.read(table.csv([{**row, **nan} for row in rows], CONFIG), CONFIG)
    assert [*result] == [column.name for column in table.columns(CONFIG)] and len(result) == len(rows)
    for row, read in zip(rows, columns.rows(result), strict=True):
        assert {name: value for name, value in read.items() if value == value} == row
