"""A circuit-centric classifier: features as amplitudes, then strongly entangling layers.

Schuld et al., Phys. Rev. A 101, 032308 (2020); several copies of the features as in arXiv:2403.07059. Copy this file next to
your config, change it, and name it there:

    models:
      circuit-centric: {file: circuit_centric.py, class: CircuitCentric, control: mlp, depth: 4, copies: 2}
"""

from __future__ import annotations

import math

import torch
from torch import nn

import ketscale
from ketscale.engines.circuits.circuit import Angles
from ketscale.errors import UserError
from ketscale.simulators.factory import resolve_simulator


def circuit_of(wires: int, depth: int) -> ketscale.Circuit:
    """`depth` times: a general rotation on each wire, and a ring of CNOTs, whose span grows from layer to layer."""
    circuit, angle = ketscale.Circuit(wires), 0
    for layer in range(depth):
        for wire in range(wires):
            circuit = circuit.rot(wire, *(f"w{angle + part}" for part in range(3)))
            angle += 3
        for wire in range(wires if wires > 1 else 0):
            circuit = circuit.cnot(wire, (wire + layer % (wires - 1) + 1) % wires)
    return circuit


class CircuitCentric(nn.Module):
    """Features (batch, inputs) -> amplitudes of `copies` registers -> Z of the first wire -> outputs (batch, outputs).

    For more than two outputs Z of every wire is measured, where the paper has circuits of two classes alone.
    A register has as many wires as its 2^wires amplitudes need, which are filled up by 1 / 2^wires; their norm says nothing.
    """

    def __init__(self, simulator: object, inputs: int, outputs: int, depth: int = 4, copies: int = 1) -> None:
        super().__init__()
        register = max(1, math.ceil(math.log2(inputs)))
        wires = register * copies
        if wires > 12:
            raise UserError(f"copies: {copies} of {register} wires are too many to simulate; take fewer")
        self.simulator, self.circuit = resolve_simulator(simulator), circuit_of(wires, depth)
        self.copies, self.fill = copies, 2**register - inputs
        self.words = [
            "I" * wire + "Z" + "I" * (wires - 1 - wire) for wire in range(wires if outputs > 2 else 1)
        ]
        self.weights = nn.Parameter(2 * math.pi * torch.rand(3 * wires * depth))
        self.head = nn.Linear(len(self.words), outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        filled = nn.functional.pad(x, (0, self.fill), value=1 / (x.shape[-1] + self.fill))
        one = nn.functional.normalize(filled, dim=-1)
        state = one
        for _ in range(self.copies - 1):
            state = (state.unsqueeze(-1) * one.unsqueeze(-2)).flatten(-2)
        angles = Angles(x.new_empty(len(x), 0), self.weights)
        return self.head(
            self.simulator.expval(self.circuit, angles, self.words, torch.complex(state, state * 0))
        )
