"""Runs that are killed leave no record, and rerun they end as if nothing had happened."""

import json
import os
import signal
import time

import psutil
import pytest

from tests.process.integration import study


@pytest.fixture(scope="module")
def whole(tmp_path_factory, digits_features):
    """The record of an undisturbed long run."""
    return study.train(tmp_path_factory.mktemp("whole"), study.run(protocol="long"), digits_features)


def until_saved(folder, run, what="*.pt"):
    """Wait for the first checkpoint, or for the history that is beside it; the folder of checkpoints."""
    checkpoints = study.results(folder, run) / "checkpoint"
    deadline = time.monotonic() + 100
    while not list(checkpoints.glob(what)):
        assert time.monotonic() < deadline, f"no {what} after 100 s"
        time.sleep(0.01)
    return checkpoints


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_timed_run_that_was_killed_is_timed_from_its_beginning(tmp_path, digits_features, how, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a host of its own, so that it waits for nobody
    run = study.run(protocol="timed-long")
    with study.launch(tmp_path, run, digits_features, start_new_session=True) as process:
        checkpoints = until_saved(tmp_path, run, "*.csv")  # the history of the first two seconds
        os.killpg(process.pid, how)
        _, error = process.communicate(timeout=60)
    assert process.returncode != 0 and not (tmp_path / study.record(run)).exists()
    assert not list(checkpoints.glob("*.pt"))
    assert (
        how == signal.SIGKILL or "a timed run has no checkpoints, so the same command starts again" in error
    )
    if how == signal.SIGTERM:
        return  # what is left is what SIGKILL leaves, which is trained again for many steps below
    with study.launch(tmp_path, run, digits_features) as process:
        _, error = process.communicate(timeout=100)
    record = json.loads((tmp_path / study.record(run)).read_text())
    assert (record["status"], record["resumed"]) == ("completed", 0)
    assert "a timed run has no checkpoints: starting from the beginning" in error
    assert record["timing"]["step"]["count"] == record["timing"]["steps"] - 2 == 19_998


def until_it_waits(second):
    """Read what a second writer says until it waits for the first; what it said."""
    said = []
    while not said or "waiting until it ends" not in said[-1]:
        said.append(second.stderr.readline())
        assert said[-1], said
    return "".join(said)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_to_bitwise_the_same_weights(tmp_path, digits_features, whole, how):
    run = study.run(protocol="long")
    with study.launch(tmp_path, run, digits_features, start_new_session=True) as process:
        checkpoints = until_saved(tmp_path, run)
        os.killpg(process.pid, how)
        _, error = process.communicate(timeout=60)
    assert process.returncode == (143 if how == signal.SIGTERM else -signal.SIGKILL), error
    assert not (tmp_path / study.record(run)).exists()
    record = study.train(tmp_path, run, digits_features)
    assert record["resumed"] == 1
    assert record["weights_hash"] == whole["weights_hash"] is not None
    assert record["losses"] == whole["losses"]
    assert not list(checkpoints.glob("*.pt"))


@pytest.mark.parametrize("place", ["mpi-n1r2t1", "ddp-cpu-n1r2t1"])
def test_two_ranks_stop_and_resume_together(tmp_path, digits_features, place, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    run = study.run(place, protocol="long")
    with study.launch(tmp_path, run, digits_features) as process:
        until_saved(tmp_path, run)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode != 0 and not (tmp_path / study.record(run)).exists()
    resumed = study.train(tmp_path, run, digits_features)
    undisturbed = study.train(tmp_path / "again", run, digits_features)
    assert (resumed["resumed"], undisturbed["resumed"]) == (1, 0)
    assert resumed["weights_hash"] == undisturbed["weights_hash"] is not None
    assert not [name for name in os.listdir(temporary) if name.startswith(("torchelastic", "ompi", "prte"))]


def test_a_rank_that_is_stopped_holds_nobody_up_when_torchrun_is_killed(tmp_path, digits_features):
    run = study.run("ddp-cpu-n1r2t1", protocol="longer")
    with study.launch(tmp_path, run, digits_features) as launch:
        until_saved(tmp_path, run)
        (torchrun,) = psutil.Process(launch.pid).children()
        ranks = torchrun.children()
        ranks[1].suspend()
        torchrun.kill()
        _, error = launch.communicate(timeout=60)
    assert launch.returncode == 137, error
    assert not [rank for rank in ranks if rank.is_running()]
    note = json.loads((study.results(tmp_path, run) / "failure.json").read_text())
    assert note["reason"].startswith("the launcher of its ranks was killed (SIGKILL), so they were ended"), (
        note
    )


def test_ranks_do_not_outlive_what_started_them(tmp_path, digits_features):
    """`ketscale launch` is killed alone: the run saves a checkpoint and stops, and says so."""
    run = study.run(protocol="long")
    with study.launch(tmp_path, run, digits_features) as process:
        until_saved(tmp_path, run)
        process.kill()
        process.communicate(timeout=60)  # the ranks hold the pipes until they end
    assert not (tmp_path / study.record(run)).exists()
    note = json.loads((study.results(tmp_path, run) / "failure.json").read_text())
    assert note["reason"].startswith("it was told to stop (SIGTERM); stopped at step")
    assert study.train(tmp_path, run, digits_features)["resumed"] == 1
    assert not (study.results(tmp_path, run) / "failure.json").exists()


def test_a_second_writer_waits_for_the_first_and_takes_its_result(tmp_path, digits_features):
    run = study.run(protocol="long")
    with study.launch(tmp_path, run, digits_features, start_new_session=True) as first:
        until_saved(tmp_path, run)
        # The first is held, so that it still trains when the second has started, however slow the machine is.
        os.killpg(first.pid, signal.SIGSTOP)
        try:
            second = study.launch(tmp_path, run, digits_features)
            said = until_it_waits(second)
        finally:
            os.killpg(first.pid, signal.SIGCONT)
        with second:
            said += second.communicate(timeout=200)[1]
        first.communicate(timeout=200)
    assert (first.returncode, second.returncode) == (0, 0), said
    record = json.loads((tmp_path / study.record(run)).read_text())
    pids = {rank["pid"] for rank in record["machine"]["ranks"]}
    assert f"process {pids.pop()} on " in said


@pytest.mark.parametrize(
    "place",
    ["cpu-n1r1t1", "mpi-n1r2t1", pytest.param("ddp-cpu-n1r2t1", marks=pytest.mark.nightly)],
)
def test_a_second_writer_that_is_stopped_says_nothing_about_the_first(tmp_path, digits_features, place):
    run = study.run(place, protocol="longer")
    with study.launch(tmp_path, run, digits_features) as first:
        until_saved(tmp_path, run)
        with study.launch(tmp_path, run, digits_features) as second:
            until_it_waits(second)
            second.terminate()
            second.communicate(timeout=60)
        noted, ended = (study.results(tmp_path, run) / "failure.json").exists(), first.poll()
        first.terminate()
        first.communicate(timeout=60)
    assert second.returncode != 0 and ended is None and not noted
