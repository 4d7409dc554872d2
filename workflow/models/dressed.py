"""A dressed circuit: a variational circuit between two linear layers.

Mari et al., Quantum 4, 340 (2020). Copy this file next to your config, change it, and name it there:

    models:
      dressed: {file: dressed.py, class: Dressed, control: mlp, depth: 2}
"""

from __future__ import annotations

import math

import torch
from torch import nn

import ketscale


def circuit_of(qubits: int, depth: int) -> ketscale.Circuit:
    """An angle on each wire, then `depth` times: CNOTs of neighbours, those that begin at even wires first, and rotations."""
    circuit = ketscale.Circuit(qubits)
    for wire in range(qubits):
        circuit = circuit.h(wire).ry(wire, f"x{wire}")
    for layer in range(depth):
        for first in (0, 1):
            for wire in range(first, qubits - 1, 2):
                circuit = circuit.cnot(wire, wire + 1)
        for wire in range(qubits):
            circuit = circuit.ry(wire, f"w{layer * qubits + wire}")
    return circuit


class Dressed(nn.Module):
    """Features (batch, inputs) -> linear, tanh: an angle for each wire -> Z of each wire -> outputs (batch, outputs).

    spread: standard deviation of the circuit's weights at the start.
    """

    def __init__(
        self, qubits: int, simulator: object, inputs: int, outputs: int, depth: int = 2, spread: float = 0.1
    ) -> None:
        super().__init__()
        self.before = nn.Linear(inputs, qubits)
        self.circuit = ketscale.Layer(circuit_of(qubits, depth), simulator=simulator)
        nn.init.normal_(self.circuit.weight, 0, spread)
        self.after = nn.Linear(qubits, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.tanh(self.before(x)) * math.pi / 2
        return self.after(self.circuit(angles))
