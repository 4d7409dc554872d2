"""Five data sets and two models of a user's own, in files, and a study of them: the package is not edited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.own_files import idx, pictures

COUNT = """\
import math


def count(inputs):
    \"\"\"How many numbers a sample has.\"\"\"
    return inputs if isinstance(inputs, int) else math.prod(inputs)
"""
RING = """\
import torch
from torch import nn

import ketscale
from parts.count import count


class Ring(nn.Module):
    def __init__(self, qubits, layers, simulator, inputs, outputs, spread=0.1):
        super().__init__()
        circuit = ketscale.Circuit(qubits)
        for layer in range(layers):
            for wire in range(qubits):
                circuit = circuit.rx(wire, f"x{wire}").ry(wire, f"w{layer * qubits + wire}")
            for wire in range(qubits - 1):
                circuit = circuit.cz(wire, wire + 1)
        self.encode = nn.Linear(count(inputs), qubits)
        self.circuit = ketscale.Layer(circuit, simulator=simulator)
        self.decode = nn.Linear(qubits, outputs)

    def forward(self, x):
        return self.decode(self.circuit(self.encode(x.flatten(1))))
"""
DRESSED = """\
import pennylane as qml
import torch
from torch import nn

import ketscale
from parts.count import count


class Dressed(nn.Module):
    def __init__(self, inputs, outputs, wires=2):
        super().__init__()

        @qml.qnode(qml.device("default.qubit", wires=wires))
        def circuit(angles, weights):
            for wire in range(wires):
                qml.RY(angles[..., wire], wires=wire)
                qml.RX(weights[wire], wires=wire)
            qml.CNOT(wires=[0, 1])
            return [qml.expval(qml.PauliZ(wire)) for wire in range(wires)]

        self.circuit = ketscale.from_qnode(circuit)
        self.before = nn.Linear(count(inputs), wires)
        self.weights = nn.Parameter(0.1 * torch.randn(wires))
        self.after = nn.Linear(wires, outputs)

    def forward(self, x):
        angles = torch.tanh(self.before(x.flatten(1)))
        return self.after(torch.stack(self.circuit(angles, self.weights), dim=-1))
"""
NETWORK = {"weights": "selfsupervised", "image_size": 8, "pretrain_steps": 2}
WORKLOADS: dict[str, dict[str, Any]] = {
    "features": {"kind": "rows", "file": "data/features.npz"},
    "folder": {"kind": "image-folder", "folder": "data/pictures", **NETWORK},
    "idx": {"kind": "idx", "images": "data/images", "labels": "data/labels", **NETWORK},
    "series": {"kind": "series", "file": "data/series.npz", "split": "trials"},
    "regression": {"kind": "table", "file": "data/table.csv", "target": "depth", "task": "regression"},
}
SIMULATORS = {
    "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
    "default.qubit": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
}
LAYOUTS = ["cpu-n1r1t1", "mpi-n1r2t1"]


def written(folder: Path) -> None:
    """Write the data and the models into a folder."""
    rng = np.random.default_rng(0)
    data = folder / "data"
    (folder / "models" / "parts").mkdir(parents=True)
    data.mkdir()
    for name, text in (("ring", RING), ("dressed", DRESSED), ("parts/count", COUNT)):
        (folder / "models" / f"{name}.py").write_text(text)
    classes = np.arange(40) % 2
    features = rng.normal(size=(40, 4)) + classes[:, None]
    np.savez(data / "features.npz", x=features, y=classes)
    pictures(data / "pictures")
    idx(data, "images", rng.integers(0, 256, (40, 8, 8), np.uint8))
    idx(data, "labels", classes.astype(np.uint8))
    np.savez(data / "series.npz", signals=rng.normal(size=(40, 2, 6)), y=classes)
    table = pd.DataFrame(features, columns=["a", "b", "c", "d"])
    table.assign(depth=features @ [1.0, -2.0, 0.5, 0.0]).to_csv(data / "table.csv", index=False)


def config(workloads: Sequence[str], seeds: Sequence[int], timed_seeds: Sequence[int]) -> dict[str, Any]:
    """The config of some of `WORKLOADS`. seeds: for accuracies. timed_seeds: for each simulator and layout."""
    axes = {
        "workload": list(workloads), "model": "ring", "qubits": 2, "layers": 1, "batch": 8, "simulator": "fused",
        "backend": "cpu-n1r1t1", "protocol": "quality", "seed": list(seeds),
    }  # fmt: skip
    dressed = {"model": "dressed", "qubits": 0, "layers": 0, "simulator": "none"}
    kinds = {
        "accuracy": {"protocol": "quality"},
        "simulator": {"protocol": "timing", "simulator": list(SIMULATORS), "seed": list(timed_seeds)},
        "strong": {"protocol": "timing", "backend": LAYOUTS, "seed": list(timed_seeds)},
        "parity": {"protocol": "parity", "seed": 0},
    }
    points = {
        "accuracy": [{}, dressed],
        "simulator": [{}],
        "strong": [{}, dressed],
        "parity": [{"simulator": list(SIMULATORS)}, {"backend": LAYOUTS}, {**dressed, "backend": LAYOUTS}],
    }
    quick = {"learning_rate": 0.01}
    return {
        "title": "Own data and models",
        "workloads": {name: WORKLOADS[name] for name in workloads},
        "models": {
            "ring": {"file": "models/ring.py", "class": "Ring", "control": "dressed", "spread": 0.2},
            "dressed": {"file": "models/dressed.py", "class": "Dressed"},
        },
        "simulators": SIMULATORS,
        "protocols": {
            "quality": {"precision": "fp64", "timed": False, "epochs": 2, **quick},
            "timing": {"precision": "fp32", "timed": True, "steps": 12, "sampled_steps": 2, **quick},
            "parity": {"precision": "fp64", "timed": False, "steps": 4, "learning_rate": 0.001},
        },
        "studies": {
            kind: {
                "kind": kind,
                "question": f"What does the {kind} say?",
                "axes": {**axes, **of_kind},
                "points": points[kind],
            }
            for kind, of_kind in kinds.items()
        },
    }
