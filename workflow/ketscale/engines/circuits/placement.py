"""Circuits on another device than the model's: the transfers there and back, timed as their own span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator, stacks
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.measure.spans import span


class Placed:
    """A simulator whose circuits run on `device`, for a model whose tensors are on another device."""

    def __init__(self, simulator: Simulator, device: torch.device) -> None:
        self.simulator = simulator
        self.device = device
        self.stacks = stacks(simulator)

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        there, start = self._send(angles, initial)
        return _move(self.simulator.state(circuit, there, start), angles.inputs.device)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        there, start = self._send(angles, initial)
        return _move(self.simulator.expval(circuit, there, paulis, start), angles.inputs.device)

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """See `superposition.superposed`."""
        there, _ = self._send(angles, None)
        moved = Superposition(*(_move(tensor, self.device) for tensor in superposition))
        return _move(superposed(self.simulator, circuit, there, paulis, moved), angles.inputs.device)

    def _send(self, angles: Angles, initial: torch.Tensor | None) -> tuple[Angles, torch.Tensor | None]:
        there = Angles(*(_move(tensor, self.device) for tensor in angles))
        return there, None if initial is None else _move(initial, self.device)


class _Move(torch.autograd.Function):
    """`Tensor.to`, with the gradient's transfer timed too."""

    @staticmethod
    def forward(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        with span("transfer"):
            return tensor.to(device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.device], output: torch.Tensor) -> None:
        ctx.origin = inputs[0].device

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        with span("transfer"):
            return gradient.to(ctx.origin), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], tensor: torch.Tensor, device: torch.device
    ) -> tuple[torch.Tensor, int | None]:
        return _move(tensor, device), in_dims[0]


def _move(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    moved: torch.Tensor = _Move.apply(tensor, device)
    return moved
