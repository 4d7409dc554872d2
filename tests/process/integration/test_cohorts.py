"""Runs of one shape in one process: each leaves what it would leave alone."""

import json
import os
import signal
import subprocess
from datetime import datetime

import pytest

from ketscale.jobs import cohorts
from ketscale.measure.record import check
from tests.process.integration import study
from tests.process.integration.test_killed import until_saved
from tests.process.parallel.worlds import environment

CALL = "a-call"


def runs(protocol, seeds=3, model="mlp"):
    """Runs of one shape."""
    axes = {"mlp": {"size": "q0-l0", "simulator": "none"}, "vqc": {"size": "q2-l1", "simulator": "fused"}}
    return [study.run(model=model, seed=seed, protocol=protocol, **axes[model]) for seed in range(seeds)]


@pytest.fixture
def call(tmp_path, monkeypatch):
    """A call of Snakemake that has written down a cohort of these runs."""

    def write(wanted, folder=tmp_path):
        monkeypatch.setenv("KETSCALE_CALL", CALL)
        monkeypatch.setenv(cohorts.VARIABLE, "")
        cohorts.write(folder / "results", [[study.settings(run) for run in wanted]])

    return write


def record(folder, run):
    return json.loads((folder / study.record(run)).read_text())


@pytest.mark.parametrize("model", ["mlp", "vqc"])
def test_the_first_job_trains_all_and_the_others_find_their_records(
    tmp_path, digits_features, call, monkeypatch, model
):
    wanted = runs("epochs", model=model)
    call(wanted)
    study.train(tmp_path, wanted[0], digits_features)
    hashed = json.loads(digits_features.read_text())["hash"]
    for run in wanted:
        path = tmp_path / study.record(run)
        found = check(path, study.settings(run), hashed).record
        assert found is not None
        assert found.cohort == [f"epochs/seed{other.seed}" for other in wanted if other != run]
        assert found.timing.step.count == 0 < found.node_hours
        # As Snakemake does before the run's own job.
        text = path.read_text()
        path.unlink()
        with study.launch(tmp_path, run, digits_features) as process:
            out, _ = process.communicate(timeout=100)
        assert process.returncode == 0 and "already finished in this call" in out
        assert path.read_text() == text
    records = [record(tmp_path, run) for run in wanted]
    assert len({tuple(each["losses"]) for each in records}) == 3
    # Each hour of the node is counted once.
    longest = max(each["timing"]["startup_s"] + seconds(each) for each in records)
    assert 3600 * sum(each["node_hours"] for each in records) <= longest
    monkeypatch.delenv(cohorts.VARIABLE)
    alone = study.train(tmp_path / "alone", wanted[1], digits_features)
    assert alone["cohort"] == [] and 3600 * alone["node_hours"] == pytest.approx(seconds(alone), abs=1e-5)
    assert records[1]["losses"] == pytest.approx(alone["losses"], rel=1e-3)
    assert records[1]["quality"]["epochs"] == alone["quality"]["epochs"]


def seconds(record):
    """From the start of a record's training to its end."""
    started, stopped = (datetime.fromisoformat(record[name]) for name in ("started", "stopped"))
    return (stopped - started).total_seconds()


def test_a_job_that_starts_late_takes_what_the_cohort_has_written(tmp_path, digits_features, call):
    """Its launch found no copy, but when it holds the run, there is one."""
    wanted = runs("epochs")
    call(wanted)
    study.train(tmp_path, wanted[0], digits_features)
    written = record(tmp_path, wanted[1])
    cohort = cohorts.file_of(wanted[1])
    command = ["ketscale", "train", study.record(wanted[1]), "--settings", study.settings(wanted[1]).text]
    subprocess.run(
        [*command, "--features", str(digits_features), "--cohort", str(cohort)],
        cwd=tmp_path,
        env=environment(),
        check=True,
        capture_output=True,
        timeout=200,
    )
    assert record(tmp_path, wanted[1]) == written


def test_one_target_stays_one_target(tmp_path, digits_features, call):
    wanted = runs("epochs")
    call(wanted[:2])
    study.train(tmp_path, wanted[2], digits_features)
    assert not any((tmp_path / study.record(run)).exists() for run in wanted[:2])
    assert record(tmp_path, wanted[2])["cohort"] == []


def test_a_killed_cohort_resumes_to_bitwise_the_same_weights(tmp_path, digits_features, call):
    wanted = runs("long")
    call(wanted, tmp_path / "whole")
    study.train(tmp_path / "whole", wanted[0], digits_features)
    call(wanted)
    with study.launch(tmp_path, wanted[0], digits_features, start_new_session=True) as process:
        # All have saved then, at the same step; they save again much later.
        until_saved(tmp_path, wanted[-1])
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not any((tmp_path / study.record(run)).exists() for run in wanted)
    study.train(tmp_path, wanted[0], digits_features)
    for run in wanted:
        whole, resumed = record(tmp_path / "whole", run), record(tmp_path, run)
        assert (whole["resumed"], resumed["resumed"]) == (0, 1)
        assert resumed["weights_hash"] == whole["weights_hash"] is not None
        assert resumed["losses"] == whole["losses"]
    assert not list(tmp_path.rglob("*.pt"))
