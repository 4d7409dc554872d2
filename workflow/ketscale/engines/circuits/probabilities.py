"""Probabilities of a circuit's outcomes: from a simulator's states, or as it draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator


def probabilities(
    simulator: Simulator,
    circuit: Circuit,
    angles: Angles,
    wires: Sequence[int],
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """The probabilities (batch, 2**len(wires)) of the outcomes on `wires`, of which the first is the most significant.

    A simulator that draws has a method `probs` of these arguments; from others they are those of the state.

    Raises:
        UserError: as for `Simulator.state`.
    """
    drawn: Any = getattr(simulator, "probs", None)
    if drawn is not None:
        found: torch.Tensor = drawn(circuit, angles, wires, initial)
        return found
    return of_state(simulator.state(circuit, angles, initial), wires)


def of_state(state: torch.Tensor, wires: Sequence[int]) -> torch.Tensor:
    """The probabilities of the outcomes on `wires` in states (batch, 2**n)."""
    qubits = state.shape[1].bit_length() - 1
    squares = torch.view_as_real(state).square().sum(-1).unflatten(1, (2,) * qubits)
    others = [1 + wire for wire in range(qubits) if wire not in wires]
    ordered = squares.permute(0, *(1 + wire for wire in wires), *others)
    return ordered.reshape(squares.shape[0], 2 ** len(wires), 2 ** len(others)).sum(-1)
