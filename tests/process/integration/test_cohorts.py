"""Runs of one shape in one process: each leaves what it would leave alone."""

import json
import shutil
import signal
from datetime import datetime

import pytest

from ketscale import grid
from ketscale.jobs import cohorts, finished, session
from ketscale.measure.record import check
from ketscale.training import checkpoint
from tests.process.integration import study


@pytest.fixture
def call(tmp_path, monkeypatch):
    """A call of Snakemake that has written down a cohort of these runs."""

    def write(wanted, folder=tmp_path):
        monkeypatch.setenv("KETSCALE_CALL", "a-call")
        monkeypatch.setenv(cohorts.VARIABLE, "")
        cohorts.write(folder / "results", [[study.settings(run) for run in wanted]])

    return write


def record(folder, run):
    return json.loads((folder / study.record(run)).read_text())


def seconds(record):
    """From the start of a record's training to its end."""
    started, stopped = (datetime.fromisoformat(record[name]) for name in ("started", "stopped"))
    return (stopped - started).total_seconds()


def test_the_first_job_trains_all_and_the_others_find_their_records(tmp_path, digits_features, call):
    expected = [study.run(seed=seed, protocol="epochs") for seed in range(3)]
    call(expected)
    study.train(tmp_path, expected[0], digits_features)
    hashed = json.loads(digits_features.read_text())["hash"]
    # It writes nothing that the others' own jobs write.
    for run in expected[1:]:
        folder = study.results(tmp_path, run)
        assert not (folder / grid.RECORD).exists() and not (folder / grid.HISTORY).exists()
        status, out, _ = study.launched(tmp_path, run, digits_features)
        assert status == 0 and "has its result" in out and not (folder / finished.KEPT).exists()
    for run in expected:
        result = check(tmp_path / study.record(run), study.settings(run), hashed).record
        assert result is not None
        assert result.cohort == [f"epochs/seed{other.seed}" for other in expected if other != run]
        assert result.timing.step.count == 0 < result.node_hours
    records = [record(tmp_path, run) for run in expected]
    assert len({tuple(each["losses"]) for each in records}) == 3
    # Each hour of the node is counted once.
    longest = max(each["timing"]["startup_s"] + seconds(each) for each in records)
    assert 3600 * sum(each["node_hours"] for each in records) <= longest
    # A run of no cohort trains alone, and one target stays one target.
    call([expected[0], expected[2]], tmp_path / "alone")
    single = study.train(tmp_path / "alone", expected[1], digits_features)
    assert len([*(tmp_path / "alone").rglob("metrics.json")]) == 1
    assert single["cohort"] == [] and 3600 * single["node_hours"] == pytest.approx(seconds(single), abs=1e-5)
    assert records[1]["losses"] == pytest.approx(single["losses"], rel=1e-3)
    assert records[1]["quality"]["epochs"] == single["quality"]["epochs"]


LONG = [
    study.run(model="mlp", size="q0-l0", simulator="none", seed=seed, protocol="long") for seed in range(3)
]


def test_a_killed_cohort_resumes_to_bitwise_the_same_weights(tmp_path, digits_features, call):
    call(LONG, tmp_path / "whole")
    study.train(tmp_path / "whole", LONG[0], digits_features)
    call(LONG)
    status, _, _ = study.launched(tmp_path, LONG[0], digits_features, struck=f"33 {signal.SIGKILL} 0")
    assert status == 137 and not any((tmp_path / study.record(run)).exists() for run in LONG)
    for run in LONG:
        study.train(tmp_path / "whole", run, digits_features)
        study.train(tmp_path, run, digits_features)
        complete, resumed = record(tmp_path / "whole", run), record(tmp_path, run)
        assert (complete["resumed"], resumed["resumed"]) == (0, 1)
        assert resumed["weights_hash"] == complete["weights_hash"] is not None
        assert resumed["losses"] == complete["losses"]
    assert not list(tmp_path.rglob("*.pt"))


class Killed(BaseException):
    """Stands for the end of the process."""


def test_members_whose_checkpoints_are_of_different_steps_go_on_each_from_its_own(
    tmp_path, digits_features, call, monkeypatch, one_thread
):
    """The cohort is killed while it writes them, and one that is damaged is put aside: its run begins anew."""
    save, saved = checkpoint.save, []

    def save_or_die(folder, *rest):
        if len(saved) == 4:
            raise Killed
        saved.append(folder)
        save(folder, *rest)

    def train(run):
        return session.train(
            study.settings(run), study.results(tmp_path, run), digits_features, cohorts.file_of(run)
        )

    call(LONG)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_or_die)
        with pytest.raises(Killed):
            train(LONG[0])
    (damaged,) = study.results(tmp_path, LONG[1]).glob("checkpoint/*.pt")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    for run in LONG:
        train(run)
        shutil.rmtree(tmp_path / "alone", ignore_errors=True)
        session.train(study.settings(run), study.results(tmp_path / "alone", run), digits_features)
        one, own = record(tmp_path / "alone", run), record(tmp_path, run)
        assert own["resumed"] == int(run != LONG[1]) and own["losses"] == pytest.approx(
            one["losses"], rel=1e-3
        )
