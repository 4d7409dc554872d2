"""Whole runs from the command line: the record they leave, and the errors that leave none."""

import csv
import json
import os
import signal
import subprocess
import time

import pytest

from ketscale import grid, records
from tests.integration import study
from tests.parallel.worlds import environment


def leftovers(folder):
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "config.yaml"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, digits_features):
    """The record of an undisturbed long run."""
    return study.train(tmp_path_factory.mktemp("whole"), study.run(protocol="long"), digits_features)


def test_record_says_what_ran_and_how_long(tmp_path, digits_features):
    run = study.run()
    trace = tmp_path / "trace.json"
    record = study.train(tmp_path, run, digits_features, "--trace", str(trace))
    assert record == records.read(tmp_path / run.path)
    assert grid.Run.of(record["run"]) == run
    settings = grid.resolve(study.CONFIG, run)
    assert record["config"] == settings and record["config_hash"] == grid.config_hash(settings)
    assert record["features_hash"] == json.loads(digits_features.read_text())["hash"]
    assert record["status"] == "completed" and record["resumed"] == 0 and record["quality"] is None
    assert len(record["losses"]) == 12
    timing = record["timing"]
    assert timing["steps"] == 12 and timing["steps_per_epoch"] == 90
    assert timing["step"]["count"] == 12 - 2 - 2 and timing["sampled_step"]["count"] == 2
    assert timing["epoch_s"] == pytest.approx(90 * timing["step"]["median_s"])
    assert {"circuit.forward", "circuit.backward", "optimiser"} <= set(timing["spans"])
    (rank,) = record["machine"]["ranks"]
    assert rank["threads"]["torch"] == 1 and rank["threads"]["OMP_NUM_THREADS"] == "1"
    assert rank["samples"] == 12 * 16 and rank["peak_rss_bytes"] > 1e8
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event["name"] == "step" for event in events) == 2
    with (tmp_path / run.folder / "history.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["12"]


def test_training_by_epochs_reports_quality(tmp_path, digits_features):
    run = study.run(model="mlp", qubits=0, layers=0, simulator="none", protocol="epochs", batch=64)
    record = study.train(tmp_path, run, digits_features)
    quality = record["quality"]
    assert quality["epochs"] == 2 and set(quality["test"]) == {"loss", "accuracy", "auc", "f1", "confusion"}
    confusion = quality["test"]["confusion"]
    right = sum(confusion[i][i] for i in range(10))
    assert right / sum(map(sum, confusion)) == pytest.approx(quality["test"]["accuracy"])
    assert record["timing"]["epoch"]["count"] == 2


def test_inline_features_give_the_losses_of_cached_ones(tmp_path, digits_features):
    cached = study.train(tmp_path, study.run(), digits_features)
    inline = study.train(tmp_path, study.run(protocol="inline"), digits_features)
    assert inline["losses"] == pytest.approx(cached["losses"], rel=1e-3)
    assert inline["timing"]["step"]["median_s"] > cached["timing"]["step"]["median_s"]


def test_a_diverged_run_leaves_a_record_that_says_so(tmp_path, digits_features):
    record = study.train(tmp_path, study.run(protocol="wild"), digits_features)
    assert record["status"] == "diverged" and "step" in record["reason"]
    assert record["quality"] is None and record["weights_hash"] is None


@pytest.mark.parametrize("message", ["[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"])
def test_a_run_that_does_not_fit_leaves_a_record_that_says_so(
    tmp_path, digits_features, monkeypatch, one_thread, message
):
    from ketscale.models.vqc import VQC
    from ketscale.training import session

    def forward(self, x):
        raise RuntimeError(message)

    monkeypatch.setattr(VQC, "forward", forward)
    run = study.run()
    status = session.train(run, grid.resolve(study.CONFIG, run), tmp_path / run.folder, digits_features, None)
    record = records.read(tmp_path / run.path)
    assert status == record["status"] == "out_of_memory" and message in record["reason"]


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
    assert study.train(tmp_path, run, digits_features)["resumed"] == 1


BAD = {
    "gpu-n1r1t1": "torch sees no GPU here",
    "ddp-n1r1t1": "torch sees no GPU here",
    "mpi-n2r2t1": "asks for 2 node(s)",
}


@pytest.mark.parametrize("where", BAD)
def test_what_is_missing_here_is_an_error_and_leaves_nothing(tmp_path, digits_features, where):
    import torch

    if torch.cuda.is_available() and where != "mpi-n2r2t1":
        pytest.skip("this machine has a GPU")
    run = study.run(where)
    with study.launch(tmp_path, run, digits_features) as process:
        _, error = process.communicate(timeout=100)
    assert process.returncode != 0
    assert BAD[where] in error
    assert "Traceback" not in error.split("torch.distributed.elastic")[0]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "results/runs/nonsense"], "not a run's path"),
        (["train", "{run}", "--config", "absent.yaml"], "absent.yaml"),
        (["train", "{run}", "--settings", "{"], "--settings: not JSON"),
        (["train", "{run}", "--settings", "[]"], "must be a JSON object"),
        (["train", "{run}"], "OMP_NUM_THREADS is not set"),
        (["launch", "{run}", "--features", "absent.json"], "absent.json"),
        (["launch", "{other}"], "lightning.qubit"),
        (["features", "compute", "mnist", "--out", "x.json", "--weights", "w"], "no workload 'mnist'"),
        (
            ["features", "compute", "digits", "--out", "x.json", "--weights", "absent.safetensors"],
            "absent.safetensors",
        ),
        (["collect"], "missing"),
        (["figures"], "results/tables"),
    ],
)
def test_bad_calls_are_answered_in_two_lines_and_leave_nothing(tmp_path, arguments, message):
    study.write_config(tmp_path)
    names = {"run": study.run().path, "other": study.run(simulator="lightning.qubit").path}
    done = subprocess.run(
        ["ketscale", *(a.format(**names) for a in arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={k: v for k, v in environment().items() if not k.endswith("_NUM_THREADS")},
    )
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and len(done.stderr.splitlines()) <= 2
    assert leftovers(tmp_path) == []


def test_help_teaches():
    done = subprocess.run(["ketscale", "--help"], capture_output=True, text=True, env=environment())
    assert done.returncode == 0 and "examples:" in done.stdout and "doctor" in done.stdout


def test_a_timed_run_waits_for_the_host(tmp_path, digits_features):
    """Another timed run holds the host: this one starts when it is let go, and an untimed one too."""
    import fcntl
    import tempfile

    with open(os.path.join(tempfile.gettempdir(), "ketscale-host.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = study.run(protocol="timed")
        with study.launch(tmp_path, run, digits_features) as process:
            time.sleep(8)
            assert process.poll() is None and not (tmp_path / run.path).exists()
            fcntl.flock(lock, fcntl.LOCK_UN)
            out, error = process.communicate(timeout=60)
    assert process.returncode == 0, out + error
    record = records.read(tmp_path / run.path)
    assert len(record["machine"]["ranks"][0]["affinity"]) == 1


def test_other_processes_at_work_are_noticed():
    from ketscale.training.host import Quiet

    quiet = Quiet()
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as burner:
        time.sleep(1.5)
        share = quiet.report(quiet.own_s())
        burner.kill()
    assert share["others_share"] > 0.6 / (os.cpu_count() or 1)
    assert not share["quiet"] or share["others_share"] <= 0.05
