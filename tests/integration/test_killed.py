"""Runs that are killed leave no record, and rerun they end as if nothing had happened."""

import signal
import time

import pytest

from tests.integration import study


@pytest.fixture(scope="module")
def whole(tmp_path_factory, digits_features):
    """The record of an undisturbed long run."""
    return study.train(tmp_path_factory.mktemp("whole"), study.run(protocol="long"), digits_features)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_to_bitwise_the_same_weights(tmp_path, digits_features, whole, how):
    run = study.run(protocol="long")
    with study.launch(tmp_path, run, digits_features) as process:
        checkpoints = tmp_path / run.folder / "checkpoint"
        deadline = time.monotonic() + 100
        while not list(checkpoints.glob("*.pt")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(how)
        _, error = process.communicate(timeout=60)
    assert process.returncode == (143 if how == signal.SIGTERM else -signal.SIGKILL), error
    assert not (tmp_path / run.path).exists()
    record = study.train(tmp_path, run, digits_features)
    assert record["resumed"] == 1
    assert record["weights_hash"] == whole["weights_hash"] is not None
    assert record["losses"] == whole["losses"]
    assert not list(checkpoints.glob("*.pt"))


def test_two_ranks_stop_and_resume_together(tmp_path, digits_features):
    run = study.run("mpi-n1r2t1", protocol="long")
    with study.launch(tmp_path, run, digits_features) as process:
        checkpoints = tmp_path / run.folder / "checkpoint"
        deadline = time.monotonic() + 100
        while not list(checkpoints.glob("*.pt")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode != 0 and not (tmp_path / run.path).exists()
    resumed = study.train(tmp_path, run, digits_features)
    undisturbed = study.train(tmp_path / "again", run, digits_features)
    assert (resumed["resumed"], undisturbed["resumed"]) == (1, 0)
    assert resumed["weights_hash"] == undisturbed["weights_hash"] is not None
