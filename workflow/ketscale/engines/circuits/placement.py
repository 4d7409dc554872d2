"""Circuits on another device than the model's: the transfers there and back, timed as their own span."""

from __future__ import annotations

from typing import Any

import torch

from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.simulator import Simulator, stacks
from ketscale.engines.circuits.wrapper import Evaluate, Wrapper
from ketscale.measure.spans import span


class Placed(Wrapper):
    """A simulator whose circuits run on `device`, for a model whose tensors are on another device."""

    def __init__(self, simulator: Simulator, device: torch.device) -> None:
        super().__init__(simulator)
        self.device = device
        self.stacks = stacks(simulator)

    def through(self, evaluate: Evaluate, angles: Angles, *others: torch.Tensor) -> torch.Tensor:
        """See `Wrapper.through`."""
        there = Angles(*(_move(tensor, self.device) for tensor in angles))
        result = evaluate(there, *(_move(tensor, self.device) for tensor in others))
        return _move(result, angles.inputs.device)


class _Move(torch.autograd.Function):
    """`Tensor.to`, with the gradient's transfer timed too."""

    @staticmethod
    def forward(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        with span("transfer"):
            return tensor.to(device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.device], output: torch.Tensor) -> None:
        ctx.origin, ctx.device = inputs[0].device, inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        with span("transfer"):
            return gradient.to(ctx.origin), None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, _: None) -> torch.Tensor:
        return _move(tangent, ctx.device)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], tensor: torch.Tensor, device: torch.device
    ) -> tuple[torch.Tensor, int | None]:
        return _move(tensor, device), in_dims[0]


def _move(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if torch.compiler.is_compiling():  # which has no spans
        return tensor.to(device)
    moved: torch.Tensor = _Move.apply(tensor, device)
    return moved
