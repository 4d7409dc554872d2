"""A dressed circuit: a QNode of PennyLane between two linear layers.

Mari et al., Quantum 4, 340 (2020). Copy this file beside your config, change it, and name it there:

    models:
      dressed: {file: dressed.py, class: Dressed, control: mlp, depth: 2}

`ketscale.from_qnode` evaluates the circuit by `fused`; without it the QNode runs on the device that it names.
"""

from __future__ import annotations

import math

import pennylane as qml
import torch
from torch import nn

import ketscale


class Dressed(nn.Module):
    """Features (batch, inputs) -> linear, tanh: an angle for each wire -> Z of each wire -> outputs (batch, outputs).

    spread: standard deviation of the circuit's weights at the start.
    """

    def __init__(
        self, inputs: int, outputs: int, wires: int = 4, depth: int = 2, spread: float = 0.1
    ) -> None:
        super().__init__()

        @qml.qnode(qml.device("default.qubit", wires=wires))
        def circuit(angles, weights):
            for wire in range(wires):
                qml.Hadamard(wire)
                qml.RY(angles[..., wire], wires=wire)
            for layer in range(depth):
                for first in (0, 1):
                    for wire in range(first, wires - 1, 2):
                        qml.CNOT(wires=[wire, wire + 1])
                for wire in range(wires):
                    qml.RY(weights[layer, wire], wires=wire)
            return [qml.expval(qml.PauliZ(wire)) for wire in range(wires)]

        self.circuit = ketscale.from_qnode(circuit)
        self.before = nn.Linear(inputs, wires)
        self.weights = nn.Parameter(spread * torch.randn(depth, wires))
        self.after = nn.Linear(wires, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.tanh(self.before(x)) * math.pi / 2
        return self.after(torch.stack(self.circuit(angles, self.weights), dim=-1))
