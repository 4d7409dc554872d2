"""A small config for tests of whole runs, and the commands that train them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ketscale import grid
from ketscale.config import Config, Settings
from ketscale.problems.registry import FAMILIES
from tests import ROOT
from tests.conftest import DIGITS
from tests.process import forks
from tests.process.parallel.worlds import environment

TRAINING = {
    "precision": "fp32",
    "features": "cached",
    "timed": False,
    "learning_rate": 1e-3,
    "clip_norm": 1.0,
}
LBFGS = {
    "precision": "fp64",
    "features": "cached",
    "timed": False,
    "learning_rate": 1.0,
    "optimiser": "l-bfgs",
}
CONFIG: dict[str, Any] = {
    "title": "test",
    "workloads": {
        "digits": DIGITS,
        "imagenet": {"kind": "digits", "split_seed": 0, "weights": "imagenet", "image_size": 8},
        "sentences": {"seed": 1, "held_out": 2, "split_seed": 0},
    },
    "simulators": {
        "default.qubit": {
            "device": "default.qubit",
            "gradient": "backprop",
            "batching": "broadcast",
            "placement": "model",
        },
        "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
        "closed-form-shift": {
            "device": "closed-form",
            "gradient": "parameter-shift",
            "batching": "broadcast",
            "placement": "model",
        },
    },
    "protocols": {
        "descent": {**TRAINING, "precision": "fp64", "optimiser": "gradient-descent", "steps": 12},
        "l-bfgs": {**LBFGS, "epochs": 25},
        "short": {**TRAINING, "steps": 12, "sampled_steps": 2},
        "timed": {**TRAINING, "steps": 12, "timed": True},
        "inline": {**TRAINING, "steps": 12, "features": "inline"},
        "long": {**TRAINING, "steps": 60, "checkpoint_steps": 5},
        # Ends when it is told to.
        "longer": {**TRAINING, "steps": 50_000, "checkpoint_steps": 100},
        "limited": {**TRAINING, "steps": 400, "limit_s": 1e-3},
        "wild": {**TRAINING, "steps": 12, "learning_rate": 1e38},
        "epochs": {**TRAINING, "epochs": 2, "dropout": 0.2},
        "fit": {"precision": "fp64", "timed": False},
        "tuned": {
            **{name: value for name, value in TRAINING.items() if name != "learning_rate"},
            "epochs": 2,
            "search": {
                "trials": 3,
                "settings": {"learning_rate": {"low": 1e-4, "high": 0.1, "scale": "log"}},
            },
        },
    },
    "studies": {
        "test": {
            "kind": "accuracy",
            "question": "Does it run?",
            "axes": {
                "workload": "digits",
                "model": "mlp",
                "qubits": 0,
                "layers": 0,
                "batch": 64,
                "simulator": "none",
                "backend": "cpu-n1r1t1",
                "protocol": "epochs",
                "seed": 0,
            },
        }
    },
}


def run(where: str = "cpu-n1r1t1", **axes: Any) -> grid.Run:
    """A vqc run of the config in a layout, under the simulator whose processes start in the least time."""
    base = {
        "workload": "digits",
        "model": "vqc",
        "size": "q2-l1",
        "batch": 16,
        "simulator": "fused",
        "protocol": "short",
        "seed": 0,
    }
    return grid.Run.of({**base, **axes, **grid.layout(where)})


def settings(wanted: grid.Run) -> Settings:
    """All that decides a run of the config."""
    return Config.of(CONFIG, FAMILIES).settings(wanted)


def record(wanted: grid.Run) -> str:
    """The path of a run's record, below the folder that it is trained in."""
    return f"results/{wanted.path}"


def results(folder: Path, wanted: grid.Run) -> Path:
    """The folder of a run."""
    return folder / "results" / wanted.folder


def write_config(folder: Path) -> Path:
    """The config as a file."""
    folder.mkdir(exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def forked(struck: str = "") -> dict[str, str]:
    """Variables for commands that are forked; where they are to be struck, `struck.py` says when and how."""
    script = [Path(__file__).with_name("struck.py")] if struck else []
    result = environment(PYTHONPATH=str(ROOT / "workflow"), STRUCK=struck)
    return result | {"PATH": f"{forks.programs(ROOT / 'workflow', *script)}:{result['PATH']}"}


def launch(
    folder: Path, wanted: grid.Run, features: Path, *extra: str, **popen: Any
) -> subprocess.Popen[str]:
    """Start `ketscale launch` for a run in `folder`, which the test may do anything to."""
    write_config(folder)
    command = ["ketscale", "launch", record(wanted), "--features", str(features), *extra]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, **{**pipes, "env": environment(), **popen})


def launched(
    folder: Path, wanted: grid.Run, features: Path, *extra: str, struck: str = ""
) -> tuple[int, str, str]:
    """Launch a run in a process that is forked: its status and what it has said."""
    with launch(folder, wanted, features, *extra, env=forked(struck)) as process:
        out, error = process.communicate(timeout=600)
    return process.returncode, out, error


def train(folder: Path, wanted: grid.Run, features: Path, *extra: str) -> dict[str, Any]:
    """Train a run to its record, in a process that is forked."""
    status, out, error = launched(folder, wanted, features, *extra)
    assert status == 0, out + error
    return json.loads((folder / record(wanted)).read_text())
