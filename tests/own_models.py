"""A model of a user's own, in a file beside a config, with all that trains it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests import own_files

PARTS = """
from torch import nn

def decoder(qubits, outputs):
    return nn.Linear(qubits, outputs)
"""
RING = """
import torch
from torch import nn

import ketscale
from ketscale.engines.circuits.circuit import Circuit, Column, Gate
from parts import decoder


class Ring(nn.Module):
    def __init__(self, qubits, layers, inputs, outputs, simulator=None, spread=0.1):
        super().__init__()
        gates = []
        for layer in range(layers):
            gates += [Gate("RX", (w,), (Column("input", w),)) for w in range(qubits)]
            gates += [Gate("RY", (w,), (Column("weight", layer * qubits + w),)) for w in range(qubits)]
            gates += [Gate("CZ", (w, (w + 1) % qubits)) for w in range(qubits)]
        self.encode = nn.Linear(inputs, qubits)
        self.circuit = ketscale.Layer(Circuit(qubits, tuple(gates)), simulator=simulator)
        nn.init.normal_(self.circuit.weight, 0, spread)
        self.decode = decoder(qubits, outputs)

    def forward(self, x):
        return self.decode(self.circuit(self.encode(x)))
"""
# A QNode in a torch layer, as PennyLane's pages have it, and the same one converted.
QNODES = """
import pennylane as qml
import torch
from torch import nn

import ketscale


def node(qubits):
    @qml.qnode(qml.device("default.qubit", wires=qubits))
    def circuit(inputs, weights):
        qml.AngleEmbedding(inputs, wires=range(qubits))
        qml.BasicEntanglerLayers(weights, wires=range(qubits))
        return [qml.expval(qml.PauliZ(wire)) for wire in range(qubits)]

    return circuit


class Layered(nn.Module):
    def __init__(self, qubits, layers, inputs, outputs):
        super().__init__()
        layer = qml.qnn.TorchLayer(node(qubits), {"weights": (layers, qubits)})
        self.net = nn.Sequential(nn.Linear(inputs, qubits), layer, nn.Linear(qubits, outputs))

    def forward(self, x):
        return self.net(x)


class Converted(nn.Module):
    def __init__(self, qubits, layers, inputs, outputs):
        super().__init__()
        self.encode = nn.Linear(inputs, qubits)
        self.weights = nn.Parameter(torch.rand(layers, qubits))
        self.circuit = ketscale.from_qnode(node(qubits))
        self.decode = nn.Linear(qubits, outputs)

    def forward(self, x):
        return self.decode(torch.stack(self.circuit(self.encode(x), self.weights), -1))
"""
BLOCK = {"file": "models/ring.py", "class": "Ring", "control": "mlp", "spread": 0.2}
FILES = {"models/ring.py": RING, "models/parts.py": PARTS}
SIMULATORS = {
    "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
    "default.qubit": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
}


def write(folder: Path, files: dict[str, str]) -> None:
    """Files of a project, by their paths below its folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def study_of(folder: Path, block: dict[str, Any] = BLOCK, **axes: Any) -> dict[str, Any]:
    """A config with the model `ring`, one run of it, and one of its control."""
    result = own_files.study_settings(
        {"kind": "rows", "file": own_files.npz(folder, x=own_files.VECTORS, y=own_files.ANIMALS)}
    )
    result["models"] = {"ring": block}
    result["simulators"] = SIMULATORS
    study = result["studies"]["s"]
    of_model = {name: study["axes"].pop(name) for name in ("model", "qubits", "layers", "simulator")}
    study["points"] = [
        {**of_model, "model": "ring", **axes},
        {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"},
    ]
    return result


@contextlib.contextmanager
def project(folder: Path, files: dict[str, str], **settings: Any) -> Iterator[dict[str, Any]]:
    """Inside the block, the working directory has these files and a config.yaml; its settings."""
    write(folder, files)
    result = study_of(folder, **settings)
    (folder / "config.yaml").write_text(yaml.safe_dump(result))
    with contextlib.chdir(folder):
        yield result
