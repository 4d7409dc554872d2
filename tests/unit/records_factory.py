"""Synthetic records for the tests of the analysis; they never leave a test's temporary folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from ketscale import grid
from ketscale.measure import records

ROOT = Path(__file__).resolve().parents[2]
FEATURES = "f" * 64
STEP_S = {
    "fused": 0.002,
    "default.qubit": 0.004,
    "lightning.qubit": 0.05,
    "default.qubit-loop-shift": 2.0,
    "qiskit": 5.0,
    "none": 0.001,
}
SPANS = {
    "data": 0.02, "transfer": 0.01, "classical.forward": 0.15, "circuit.forward": 0.25,
    "circuit.backward": 0.3, "classical.backward": 0.17, "communication.wait": 0.02, "communication": 0.03,
    "communication.total": 0.1, "optimiser": 0.05,
}  # fmt: skip


def default_config() -> dict[str, Any]:
    """The config.yaml of the project."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "config.yaml").read_text())
    return config


def three_seeds_config() -> dict[str, Any]:
    """The project's config with three seeds at every point that has several or a time."""
    config = default_config()
    for study in config["studies"].values():
        if study["kind"] != "parity":
            study["axes"] = {**study["axes"], "seed": [0, 1, 2]}
            study["points"] = [
                {axis: value for axis, value in point.items() if axis != "seed"}
                for point in study.get("points", [{}])
            ]
    return config


def small_config(studies: Mapping[str, Any]) -> dict[str, Any]:
    """The project's workloads, simulators and protocols with other studies."""
    return {**default_config(), "studies": dict(studies)}


def point(**axes: Any) -> dict[str, Any]:
    """A study's axes at one usual point, with some of them replaced."""
    usual = {
        "workload": "digits", "model": "vqc", "qubits": 4, "layers": 3, "batch": 64,
        "simulator": "default.qubit", "backend": "cpu-n1r1t1", "protocol": "timing", "seed": [0, 1, 2],
    }  # fmt: skip
    return {**usual, **axes}


def step_time(run: grid.Run) -> float:
    """Seconds a step, plausible: it grows with batch and layers and falls with workers."""
    workers = run.ranks * run.threads
    share = STEP_S[run.simulator] * (0.5 + run.batch / 64) * (1 + run.layers / 3) / 2
    inline = 15 if run.protocol == "timing-inline" else 1
    return share * inline * (0.3 + 0.7 / workers) * (1 + 0.03 * run.seed)


def record(config: Mapping[str, Any], run: grid.Run, **changes: Any) -> dict[str, Any]:
    """A complete record of `run`; `step_s` sets the step time, other `changes` replace top-level keys."""
    settings = grid.resolve(config, run)
    protocol = settings["protocol"]
    step_s = changes.pop("step_s", step_time(run))
    nothing = {"median_s": None, "q25_s": None, "q75_s": None, "count": 0}
    around = {"median_s": step_s, "q25_s": 0.97 * step_s, "q75_s": 1.04 * step_s, "count": 50}
    spans = {name: {**around, "median_s": share * step_s} for name, share in SPANS.items()}
    steps_per_epoch = -(-1257 // run.batch)
    accuracy = 0.94 + 0.01 * run.seed + (0.005 if run.model == "mlp" else 0)
    metrics = {"loss": 0.2, "accuracy": accuracy, "auc": 0.99, "f1": accuracy, "confusion": [[1, 0], [0, 1]]}
    quality = {"epochs": 30 + run.seed, "best_epoch": 20, "validation": metrics, "test": metrics}
    rank = {
        "host": "a",
        "pid": 1,
        "threads": run.threads,
        "affinity": [0],
        "gpu_uuid": None,
        "cpu_s": 1.0,
        "samples": 10,
    }
    made = {
        "schema": records.SCHEMA_VERSION,
        "run": asdict(run),
        "status": "completed",
        "reason": None,
        "resumed": 0,
        "lost_s": 0.0,
        "call": None,
        "weights_hash": None,
        "split": {"by": "labels", "fold": None, "folds": None, "held_out": None},
        "routes": [],
        "parameters": 70186,
        "config": settings,
        "config_hash": grid.config_hash(settings),
        "data_hash": "d",
        "features_hash": FEATURES,
        "code": {"version": "0.1.0", "hash": "c" * 64, "commit": "a" * 40, "dirty": False},
        "packages": {"torch": "2.9.0", "pennylane": "0.43"},
        "mpi_library": None,
        "machine": {
            "host": "a",
            "cpu": "Synthetic CPU",
            "cores": 2,
            "memory_bytes": 8 << 30,
            "gpus": [],
            "ranks": [
                {**rank, "rank": number, "peak_rss_bytes": 400_000_000, "peak_device_bytes": None}
                for number in range(run.ranks)
            ],
        },
        "slurm_job_id": None,
        "started": "2026-01-01T00:00:00Z",
        "stopped": "2026-01-01T00:01:00Z",
        "quiet": {"quiet": True, "others_share": 0.01, "steal_share": 0.0},
        "quality": quality if "epochs" in protocol else None,
        "losses": [2.3 * 0.9**step for step in range(min(20, protocol.get("steps", 20)))],
        "timing": {
            "startup_s": 1.5,
            "data_s": 0.1,
            "first_step_s": 3 * step_s,
            "step": around,
            "spans": spans if protocol.get("sampled_steps") else {},
            "sampled_step": around if protocol.get("sampled_steps") else nothing,
            "validation_s": 0.01,
            "epoch": around if "epochs" in protocol else nothing,
            "steps": 60,
            "steps_per_epoch": steps_per_epoch,
            "epoch_s": steps_per_epoch * step_s,
            "samples_per_s": run.batch / step_s,
            "train_s": 10.0,
        },
        "node_hours": 0.01,
        "gpu_hours": 0.0,
    }
    return {**made, **changes}


def write_history(folder: Path, seed: int) -> None:
    """A history.csv of 30 epochs that falls and levels off."""
    lines = ["epoch,step,train_loss,validation_loss,validation_accuracy,gradient_norm,learning_rate,epoch_s"]
    for epoch in range(1, 31):
        loss = 2.3 * 0.85**epoch + 0.1 + 0.02 * seed
        lines.append(f"{epoch},{20 * epoch},{loss:.4f},{loss + 0.05:.4f},{1 - loss / 3:.4f},0.5,0.001,0.2")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "history.csv").write_text("\n".join(lines) + "\n")


Change = Callable[[grid.Run], Mapping[str, Any] | None]


def write_all(config: Mapping[str, Any], root: Path, change: Change = lambda run: {}) -> None:
    """A record of every run of the config below `root`; `change` replaces values, or leaves it out (None)."""
    manifests = {run.workload for run in grid.runs(config)}
    for workload in manifests:
        folder = root / "results/features" / workload
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "features.json").write_text(json.dumps({"hash": FEATURES}))
    for run in grid.runs(config):
        changes = change(run)
        if changes is not None:
            records.write(root / run.path, record(config, run, **changes))
            if "epochs" in config["protocols"][run.protocol]:
                write_history(root / run.folder, run.seed)
