"""Collecting records: what is trusted, what is named and refused, and what the tables then hold."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ketscale import analysis
from ketscale.analysis import columns
from ketscale.analysis.columns import TABLES, Trained
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
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


def collected(results: Path, config: Config = CONFIG) -> dict[str, list[dict[str, str]]]:
    """Every table after `collect`, by name."""
    factory.collect(config, results)
    texts = {name: (results / f"tables/{name}.csv").read_text() for name in TABLES}
    return {name: list(csv.DictReader(io.StringIO(text))) for name, text in texts.items()}


def only(run: Run, **changes: Any) -> factory.Change:
    """Changes to the record of one run."""
    return lambda other: changes if other == run else {}


def state(found: Mapping[str, list[dict[str, str]]], run: Run) -> tuple[str, str]:
    """The run's state and the reason."""
    row = next(row for row in found["completeness"] if row["run"] == f"results/{run.path}")
    return row["state"], row["why"]


def test_a_complete_study_gives_one_row_a_run_and_every_table(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    found = collected(tmp_path)
    assert len(found["runs"]) == len(found["completeness"]) == len(RUNS)
    assert {row["state"] for row in found["completeness"]} == {"completed"}
    assert [row["layout"] for row in found["scaling"]] == ["cpu-n1r1t1", "mpi-n1r2t1"]
    assert {row["parity"] for row in found["scaling"]} == {"held fp32"}


def test_missing_runs_stop_the_collection_and_both_ways_on_are_named(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path, lambda run: None)
    with pytest.raises(UserError) as raised:
        collected(tmp_path)
    text = str(raised.value)
    assert text.startswith("12 of 12 runs cannot be used (12 missing): results/runs/digits/mlp/")
    assert "--config partial=true" in text
    assert not (tmp_path / "tables").exists()


def test_a_partial_collection_shows_what_is_missing_and_the_last_line_of_its_log(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path, lambda run: None if run.seed == 1 else {})
    log = tmp_path / FIRST.folder.replace("seed0", "seed1") / "train.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 3\nketscale: no MPI library found\nmpirun: aborted\n\n")
    found = collected(tmp_path, PARTIAL)
    logged = Run.parse(str(log.parent))
    assert state(found, logged) == ("missing", "ketscale: no MPI library found")
    other = next(run for run in RUNS if run.seed == 1 and run != logged)
    assert state(found, other) == ("missing", "not run yet")
    assert {row["n"] for row in found["scaling"]} == {"2"}
    assert {row["absent"] for row in found["scaling"]} == {"1"}
    assert len(found["runs"]) == len(RUNS) - 4


def test_a_record_of_another_config_is_stale(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    given = dict(CONFIG.given)
    timing = {**given["protocols"]["timing"], "learning_rate": 0.002}
    changed = analysis.of({**given, "protocols": {**given["protocols"], "timing": timing}})
    with pytest.raises(UserError, match="6 stale"):
        collected(tmp_path, changed)
    found = collected(tmp_path, factory.partial(changed))
    assert state(found, FIRST)[0] == "stale"
    assert FIRST.protocol not in {row["protocol"] for row in found["runs"]}


def test_a_timed_run_that_went_on_from_a_checkpoint_is_missing_and_in_no_other_table(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    path = tmp_path / FIRST.path
    made = json.loads(path.read_text())
    del made["digest"]
    path.write_text(json.dumps(factory.sealed({**made, "resumed": 1})))
    with pytest.raises(UserError, match=r"1 missing.*: it is timed, but was stopped in between"):
        collected(tmp_path, CONFIG)
    found = collected(tmp_path, PARTIAL)
    assert state(found, FIRST)[0] == "missing"
    assert len(found["runs"]) == len(RUNS) - 1


def test_a_record_on_other_features_is_stale(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path, only(FIRST, features_hash="0" * 64))
    found = collected(tmp_path, PARTIAL)
    assert state(found, FIRST)[0] == "stale" and "other features" in state(found, FIRST)[1]


def test_a_record_whose_axes_are_not_its_paths_is_refused(tmp_path: Path) -> None:
    factory.write_all(CONFIG, tmp_path)
    other = next(run for run in RUNS if run.seed == 1 and run.protocol == FIRST.protocol)
    (tmp_path / FIRST.path).write_bytes((tmp_path / other.path).read_bytes())
    found = collected(tmp_path, PARTIAL)
    assert state(found, FIRST) == ("refused", "the axes in the record differ from those in its path")


def test_a_record_that_breaks_parity_is_refused_and_in_no_other_table(tmp_path: Path) -> None:
    broken = next(run for run in RUNS if run.backend == "mpi")
    factory.write_all(CONFIG, tmp_path, only(broken, losses=[9.0] * 20))
    with pytest.raises(UserError, match="1 refused"):
        collected(tmp_path)
    found = collected(tmp_path, PARTIAL)
    assert state(found, broken)[0] == "refused"
    assert len(found["runs"]) == len(RUNS) - 1
    assert [row["held"] for row in found["parity"] if row["run"] == f"results/{broken.path}"] == ["False"]


def test_diverged_and_out_of_memory_runs_are_results(tmp_path: Path) -> None:
    timed = [run for run in RUNS if run.layout == "cpu-n1r1t1" and run.protocol == "timing"]
    changes = {
        timed[0]: {"status": "diverged", "reason": "loss is NaN at step 7"},
        timed[1]: {"status": "out_of_memory", "reason": "17 GB asked for"},
    }
    factory.write_all(CONFIG, tmp_path, lambda run: changes.get(run, {}))
    found = collected(tmp_path)
    assert state(found, timed[0]) == ("diverged", "loss is NaN at step 7")
    assert state(found, timed[1]) == ("out_of_memory", "17 GB asked for")
    assert (found["scaling"][0]["n"], found["scaling"][0]["failed"]) == ("1", "2")


@pytest.mark.parametrize(
    ("imported", "warns"), [("nameHASH", True), ("namehash", False), ("elseHASH", False)]
)
def test_mixed_code_is_warned_of_if_a_run_imported_it(tmp_path: Path, imported: str, warns: bool) -> None:
    """Another commit may have changed docs, or a module that no other run imported."""
    other = {"version": "0.1.0", "hash": "h", "imported": imported, "commit": "b" * 40, "dirty": True}
    factory.write_all(CONFIG, tmp_path, only(FIRST, code=other))
    found = collected(tmp_path)
    assert {row["code"] for row in found["runs"]} == {"0.1.0 aaaaaaaaaa", "0.1.0 bbbbbbbbbb+dirty"}
    warning = found["completeness"][0]
    assert (warning["state"] == "warning") == warns
    if warns:
        assert "0.1.0 aaaaaaaaaa (11 runs), 0.1.0 bbbbbbbbbb+dirty (1 run)" in warning["why"]


@pytest.mark.parametrize(
    "ranks, shared", [([False, False], False), ([False, True, None], True), ([False, None], None)]
)
def test_it_is_shown_that_threads_shared_cores(ranks: list[bool | None], shared: bool | None) -> None:
    made = typed(factory.record(CONFIG, FIRST))
    used = [Rank(peak_rss_bytes=1, peak_device_bytes=None, shared_cores=rank) for rank in ranks]
    record = replace(made, machine=replace(made.machine, ranks=used))
    (row,) = columns.RUNS.of([Trained(record, CONFIG.settings(FIRST))], CONFIG)
    assert row["shared_cores"] is shared


def test_a_seed_that_another_study_ran_is_not_counted_as_absent_or_present(tmp_path: Path) -> None:
    one = {
        "kind": "simulator",
        "question": "?",
        "axes": factory.point(simulator=["fused", "default.qubit"], seed=0),
    }
    config = factory.small_config({"strong": STRONG, "one": one})
    factory.write_all(config, tmp_path)
    rows = [row for row in collected(tmp_path, config)["scaling"] if row["study"] == "one"]
    assert {row["absent"] for row in rows} == {"0"}
