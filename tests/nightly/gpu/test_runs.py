"""Whole runs through `ketscale launch`: on a GPU as on the CPU, with record, spans, checkpoints, and errors in words."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

TRAINING = {"precision": "fp32", "timed": False, "learning_rate": 0.001, "clip_norm": 1.0}
CONFIG: dict[str, Any] = {
    "title": "GPU",
    "workloads": {
        "eeg-synthetic": {
            "subjects": 6, "trials": 12, "rate": 80, "window_s": 0.8, "seed": 0, "split": "subjects", "split_seed": 0,
        },
        "long-trials": {
            "kind": "eeg-synthetic", "subjects": 20, "trials": 45, "rate": 80, "window_s": 3.1, "seed": 0,
            "split": "subjects", "split_seed": 0,
        },
        "sentences": {"seed": 1, "held_out": 1, "split_seed": 0},
    },
    "simulators": {
        "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast", "placement": "model"},
        "fused-on-cpu": {"device": "fused", "gradient": "adjoint", "batching": "broadcast", "placement": "cpu"},
    },
    "protocols": {
        "timing": {**TRAINING, "timed": True, "steps": 12, "sampled_steps": 3, "dropout": 0.1},
        "plain": {**TRAINING, "timed": True, "steps": 12, "sampled_steps": 3},
        "parity": {**TRAINING, "precision": "fp64", "steps": 8},
        "amp": {**TRAINING, "precision": "amp", "steps": 8},
        "long": {**TRAINING, "steps": 400, "checkpoint_steps": 20},
        "quality": {**TRAINING, "epochs": 2},
    },
    "studies": {},
}  # fmt: skip
TRIALS = "eeg-synthetic/{model}/q4-l2-b32"
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a CUDA device here")


class Folder:
    """A folder with the config, in which runs are trained."""

    def __init__(self, path: Path) -> None:
        self.path = path
        axes = {
            "workload": "eeg-synthetic", "model": "hydra", "qubits": 4, "layers": 2, "batch": 32, "simulator": "fused",
            "backend": "cpu-n1r1t1", "protocol": "quality", "seed": 0,
        }  # fmt: skip
        study = {"kind": "accuracy", "question": "?", "axes": axes}
        (path / "config.yaml").write_text(yaml.safe_dump({**CONFIG, "studies": {"one": study}}))
        self.prepared: set[str] = set()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command here; `ketscale` is this Python's."""
        words = (sys.executable, "-m", "ketscale", *words[1:]) if words[0] == "ketscale" else words
        return subprocess.run(words, cwd=self.path, capture_output=True, text=True, timeout=120)

    def features(self, run: str) -> list[str]:
        """The option for a run's data, made once."""
        name = run.split("/")[0]
        if name not in self.prepared:
            result = self.command("ketscale", "prepare", name)
            assert result.returncode == 0, result.stderr
            self.prepared.add(name)
        return ["--features", f"results/features/{name}/features.json"]

    def launched(self, run: str) -> subprocess.CompletedProcess[str]:
        """A run that has been started and ended somehow."""
        return self.command("ketscale", "launch", f"results/runs/{run}/metrics.json", *self.features(run))

    def record(self, run: str) -> dict[str, Any]:
        """The record of a run, trained if it has not been."""
        path = self.path / "results" / "runs" / run / "metrics.json"
        if not path.exists():
            result = self.launched(run)
            assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
        content: dict[str, Any] = json.loads(path.read_text())
        return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """One for all tests, which share runs."""
    return Folder(tmp_path_factory.mktemp("runs"))


def trials(layout: str, protocol: str = "timing", model: str = "hydra", simulator: str = "fused") -> str:
    """A run on the generated trials."""
    return f"{TRIALS.format(model=model)}/{simulator}/{layout}/{protocol}/seed0"


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["hydra", "mamba"])
@pytest.mark.parametrize("layout", ["gpu-n1r1t1", "ddp-n1r1t1"])
def test_a_gpu_trains_as_the_cpu_does(
    folder: Folder, layout: str, model: str, record_property: Callable[..., None]
) -> None:
    cpu, gpu = (folder.record(trials(where, "parity", model)) for where in ("cpu-n1r1t1", layout))
    assert gpu["losses"] == pytest.approx(cpu["losses"], rel=1e-9)
    (rank,) = gpu["machine"]["ranks"]
    assert rank["gpu_uuid"] and rank["peak_device_bytes"] > 0
    assert gpu["gpu_hours"] > 0
    if model != "hydra":
        return
    timed = folder.record(trials(layout, model=model))
    # Three of twelve steps are sampled, and two of either size of batch come before its graph.
    assert timed["replayed"] == 5
    record_property("step_s", timed["timing"]["step"]["median_s"])
    record_property("first_step_s", timed["timing"]["first_step_s"])
    record_property("startup_s", timed["timing"]["startup_s"])
    record_property("spans", {name: span["median_s"] for name, span in timed["timing"]["spans"].items()})
    assert timed["timing"]["step"]["count"] > 0
    assert "communication" not in timed["timing"]["spans"]  # a single rank has nobody to send to


@pytest.mark.gpu
def test_mixed_precision_trains(folder: Folder) -> None:
    record = folder.record(trials("gpu-n1r1t1", "amp"))
    single = folder.record(trials("gpu-n1r1t1", "plain"))
    assert record["status"] == "completed"
    assert record["losses"] == pytest.approx(single["losses"][: len(record["losses"])], rel=0.05)


@pytest.mark.gpu
def test_out_of_memory_is_said_in_words(folder: Folder) -> None:
    free, _ = torch.cuda.mem_get_info()
    # What is left is enough to start and to place the data, and not for the states of 512 trials of 248 steps.
    hoard = torch.empty(max(0, free - 3 * 2**30), dtype=torch.uint8, device="cuda")
    try:
        run = trials("gpu-n1r1t1").replace("q4-l2-b32", "q12-l2-b512").replace("eeg-synthetic", "long-trials")
        result = folder.launched(run)
    finally:
        del hoard
        torch.cuda.empty_cache()
    record = folder.path / "results" / "runs" / run / "metrics.json"
    message = json.loads(record.read_text()) if record.exists() else {"status": None, "reason": result.stderr}
    assert message["status"] == "out_of_memory", message["reason"]
    assert "memory" in message["reason"] and "\n" not in message["reason"]


@pytest.mark.gpu
def test_a_second_rank_without_a_second_gpu_is_refused(folder: Folder) -> None:
    if torch.cuda.device_count() > 1:
        pytest.skip("there are several GPUs here")
    result = folder.launched(trials("ddp-n1r2t1"))
    assert result.returncode != 0
    assert (
        "local rank 1 has no GPU of its own, torch sees 1; ask for fewer ranks per node"
        in result.stdout + result.stderr
    )


@pytest.mark.gpu
def test_a_stopped_run_goes_on_from_its_checkpoint(
    folder: Folder, record_property: Callable[..., None]
) -> None:
    run = trials("gpu-n1r1t1", "long")
    place = folder.path / "results" / "runs" / run
    words = [
        sys.executable,
        "-m",
        "ketscale",
        "launch",
        f"results/runs/{run}/metrics.json",
        *folder.features(run),
    ]
    process = subprocess.Popen(
        words, cwd=folder.path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    end = time.monotonic() + 60
    while not list(place.glob("checkpoint/*.pt")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "no checkpoint within a minute"
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert not (place / "metrics.json").exists()
    resumed = folder.record(run)
    assert resumed["resumed"] == 1 and resumed["status"] == "completed"
    place.rename(place.with_name("resumed"))
    undisturbed = folder.record(run)
    record_property("bitwise", resumed["weights_hash"] == undisturbed["weights_hash"])
    assert resumed["losses"] == pytest.approx(undisturbed["losses"], rel=1e-5)


def test_two_ranks_of_gloo_train_as_one_does(folder: Folder) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    single, both = (folder.record(trials(layout, "parity")) for layout in ("cpu-n1r1t1", "ddp-cpu-n1r2t1"))
    assert both["losses"] == pytest.approx(single["losses"], rel=1e-9)


def test_two_ranks_of_mpi_train_as_one_does(folder: Folder) -> None:
    if not (importlib.util.find_spec("mpi4py") and shutil.which("mpirun")):
        pytest.skip("mpi4py and mpirun are not installed here")
    single = folder.record(trials("cpu-n1r1t1", "parity"))
    both = folder.record(trials("mpi-n1r2t1", "parity"))
    assert both["losses"] == pytest.approx(single["losses"], rel=1e-9)


@NO_GPU
@pytest.mark.parametrize("layout", ["gpu-n1r1t1", "ddp-n1r1t1"])
def test_without_a_gpu_one_is_asked_for_in_words(folder: Folder, layout: str) -> None:
    result = folder.launched(trials(layout))
    assert result.returncode != 0
    assert f"backend {layout.split('-')[0]}: torch sees no GPU here" in result.stderr + result.stdout


@pytest.mark.gpu
def test_the_transformer_trains_on_a_gpu_as_on_the_cpu(folder: Folder) -> None:
    path = "sentences/superposition_transformer/q4-l1-b8/fused/{}/parity/seed0"
    cpu, gpu = (folder.record(path.format(where)) for where in ("cpu-n1r1t1", "gpu-n1r1t1"))
    assert gpu["losses"] == pytest.approx(cpu["losses"], rel=1e-9)


@pytest.mark.gpu
def test_epochs_and_validation_on_a_gpu(folder: Folder) -> None:
    cpu, gpu = (folder.record(trials(where, "quality")) for where in ("cpu-n1r1t1", "gpu-n1r1t1"))
    assert gpu["quality"]["epochs"] == cpu["quality"]["epochs"] == 2
    assert gpu["quality"]["test"]["loss"] == pytest.approx(cpu["quality"]["test"]["loss"], rel=1e-3)


@pytest.mark.gpu
def test_a_circuit_on_the_cpu_counts_its_transfers(
    folder: Folder, record_property: Callable[..., None]
) -> None:
    record = folder.record(trials("gpu-n1r1t1", "plain", simulator="fused-on-cpu"))
    spans = {name: span["median_s"] for name, span in record["timing"]["spans"].items()}
    record_property("spans", spans)
    assert spans["transfer"] > 0
    assert record["replayed"] == 0
    neighbour = folder.record(trials("gpu-n1r1t1", "plain"))
    assert "transfer" not in neighbour["timing"]["spans"]
    assert record["losses"] == pytest.approx(neighbour["losses"], rel=1e-3)
