"""Data re-uploading: features enter the circuit again in every layer, each as a trained multiple of an angle.

Perez-Salinas et al., Quantum 4, 226 (2020). Copy this file next to your config, change it, and name it there:

    models:
      reupload: {file: reupload.py, class: Reupload, control: mlp, depth: 3}
"""

from __future__ import annotations

import math

import torch
from torch import nn

import ketscale


def circuit_of(qubits: int, depth: int, rounds: int) -> ketscale.Circuit:
    """`depth` times: `rounds` general rotations on each wire, all of whose angles are inputs, and a ring of CZ."""
    circuit, angle = ketscale.Circuit(qubits), 0
    for layer in range(depth):
        for _ in range(rounds):
            for wire in range(qubits):
                circuit = circuit.rot(wire, *(f"x{angle + part}" for part in range(3)))
                angle += 3
        # Behind the last rotations, entangling changes no measured Z.
        if layer < depth - 1:
            for wire in range(qubits if qubits > 2 else qubits - 1):
                circuit = circuit.cz(wire, (wire + 1) % qubits)
    return circuit


class Reupload(nn.Module):
    """Features (batch, inputs) -> Z of each wire -> outputs (batch, outputs).

    spread: standard deviation of the multiples and offsets at the start.
    """

    def __init__(
        self, qubits: int, simulator: object, inputs: int, outputs: int, depth: int = 3, spread: float = 0.3
    ) -> None:
        super().__init__()
        rounds = math.ceil(inputs / (3 * qubits))
        self.circuit = ketscale.Layer(circuit_of(qubits, depth, rounds), simulator=simulator)
        # What fills up the last rotations is 0, so that there an angle is its offset alone.
        self.fill = 3 * rounds * qubits - inputs
        self.scale = nn.Parameter(spread * torch.randn(depth, inputs + self.fill))
        self.offset = nn.Parameter(spread * torch.randn(depth, inputs + self.fill))
        self.head = nn.Linear(qubits, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = nn.functional.pad(x, (0, self.fill)).unsqueeze(-2)
        angles = (features * self.scale + self.offset).flatten(-2)
        return self.head(self.circuit(angles))
