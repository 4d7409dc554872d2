"""A model of a user's own, of trials, for an installed package."""

import torch
from torch import nn

import ketscale


class Own(nn.Module):
    """The mean over time -> circuit -> logits."""

    def __init__(self, qubits, inputs, outputs, simulator=None):
        super().__init__()
        channels, _ = inputs
        circuit = ketscale.Circuit(qubits)
        for wire in range(qubits):
            circuit = circuit.ry(wire, f"x{wire}").rx(wire, f"w{wire}")
        self.encode, self.decode = nn.Linear(channels, qubits), nn.Linear(qubits, outputs)
        self.circuit = ketscale.Layer(circuit, simulator=simulator)

    def forward(self, trials: torch.Tensor) -> torch.Tensor:
        return self.decode(self.circuit(self.encode(trials.mean(-1))))
