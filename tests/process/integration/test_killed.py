"""Runs that are killed leave no record, and rerun they end as if nothing had happened."""

import json
import os
import shutil
import signal
import time

import pytest

from ketscale import grid
from ketscale.jobs.locks import Lock
from tests.process.integration import study

NOTE = "failure.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, digits_features):
    """The folder of an undisturbed long run."""
    folder = tmp_path_factory.mktemp("whole")
    study.train(folder, study.run(protocol="long"), digits_features)
    return study.results(folder, study.run(protocol="long"))


def record_of(folder):
    return json.loads((folder / grid.RECORD).read_text())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_to_bitwise_the_same_weights(tmp_path, digits_features, whole, how):
    run = study.run(protocol="long")
    folder = study.results(tmp_path, run)
    status, _, error = study.launched(tmp_path, run, digits_features, struck=f"33 {how} 0")
    assert status == (143 if how == signal.SIGTERM else 137), error
    assert not (folder / grid.RECORD).exists() and list(folder.glob("checkpoint/*.pt"))
    resumed, undisturbed = study.train(tmp_path, run, digits_features), record_of(whole)
    assert (resumed["resumed"], undisturbed["resumed"]) == (1, 0)
    assert resumed["weights_hash"] == undisturbed["weights_hash"] is not None
    assert resumed["losses"] == undisturbed["losses"]
    assert not list(folder.glob("checkpoint/*.pt")) and not (folder / NOTE).exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_timed_run_that_was_killed_is_timed_from_its_beginning(tmp_path, digits_features, how, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a host of its own, so that it waits for nobody
    run = study.run(protocol="timed")
    status, _, error = study.launched(tmp_path, run, digits_features, struck=f"8 {how} 0")
    assert status != 0 and not (tmp_path / study.record(run)).exists()
    assert not list(study.results(tmp_path, run).glob("checkpoint/*.pt"))
    assert how == signal.SIGKILL or "a timed run has no checkpoints" in error
    status, _, error = study.launched(tmp_path, run, digits_features)
    timing = (record := record_of(study.results(tmp_path, run)))["timing"]
    assert (status, record["status"], record["resumed"]) == (0, "completed", 0)
    assert how == signal.SIGTERM or "a timed run has no checkpoints: starting from the beginning" in error
    assert timing["step"]["count"] + (timing["preempted"] or 0) == timing["steps"] - 2 == 10


def test_a_fit_that_is_told_to_stop_ends_where_it_is(tmp_path, digits_features):
    """It has nothing to save."""
    run = study.run(model="svm", size="q0-l0", batch=1, simulator="none", protocol="fit")
    status, _, error = study.launched(tmp_path, run, digits_features, struck=f"1 {signal.SIGTERM} 0")
    assert status == 143 and not (tmp_path / study.record(run)).exists(), error
    note = json.loads((study.results(tmp_path, run) / NOTE).read_text())
    assert note["reason"].startswith("it was cancelled")
    assert study.train(tmp_path, run, digits_features)["status"] == "completed"


@pytest.mark.parametrize("place", ["mpi-n1r2t1", pytest.param("ddp-cpu-n1r2t1", marks=pytest.mark.nightly)])
def test_two_ranks_stop_and_resume_together(tmp_path, digits_features, place, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    run = study.run(place, protocol="long")
    # What has started the launcher, which is `ketscale launch`.
    status, _, error = study.launched(tmp_path, run, digits_features, struck=f"33 {signal.SIGTERM} 2")
    assert status != 0 and not (tmp_path / study.record(run)).exists(), error
    resumed = study.train(tmp_path, run, digits_features)
    undisturbed = study.train(tmp_path / "again", run, digits_features)
    assert (resumed["resumed"], undisturbed["resumed"]) == (1, 0)
    assert resumed["weights_hash"] == undisturbed["weights_hash"] is not None
    assert not [name for name in os.listdir(temporary) if name.startswith(("torchelastic", "ompi", "prte"))]


def test_ranks_do_not_outlive_what_started_them(tmp_path, digits_features):
    """`ketscale launch` is killed alone: the run saves a checkpoint and stops, and says so."""
    run = study.run(protocol="longer")
    folder = study.results(tmp_path, run)
    with study.launch(tmp_path, run, digits_features) as process:
        end = time.monotonic() + 100
        while not list(folder.glob("checkpoint/*.pt")):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        process.kill()
        process.communicate(timeout=600)  # the ranks hold the pipes until they end
    assert not (folder / grid.RECORD).exists()
    assert json.loads((folder / NOTE).read_text())["reason"].startswith(
        "it was stopped (SIGTERM); stopped at step"
    )


def test_a_second_writer_waits_for_the_first_and_takes_its_result(tmp_path, digits_features, whole):
    run = study.run(protocol="long")
    folder = study.results(tmp_path, run)
    first = Lock(folder)
    assert first.acquire()

    def second():
        """Another writer, that waits."""
        process = study.launch(tmp_path, run, digits_features, env=study.forked())
        message = ""
        while "waiting until it ends" not in message:
            message = process.stderr.readline()
            assert message
        assert f"process {os.getpid()} on " in message
        return process

    # One that is told to stop says nothing about the first.
    with second() as stopped:
        stopped.terminate()
        stopped.communicate(timeout=600)
    assert stopped.returncode != 0 and not (folder / NOTE).exists()
    with second() as waits:
        for name in os.listdir(whole):
            if (whole / name).is_file():
                shutil.copy(whole / name, folder / name)
        first.finished = True
        first.release()
        _, error = waits.communicate(timeout=600)
    assert waits.returncode == 0, error
    assert record_of(folder) == record_of(whole)
