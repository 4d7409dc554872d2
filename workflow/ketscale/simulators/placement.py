"""Circuits on another device than the model's: the transfers there and back, timed as their own span."""

from __future__ import annotations

import torch

from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.simulator import Simulator, stacks
from ketscale.engines.circuits.wrapper import Evaluate, Wrapper
from ketscale.spans import span, with_backward_span


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


def _move(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """`Tensor.to`, timed there and, with the gradient, back."""
    if torch.compiler.is_compiling():  # which has no spans
        return tensor.to(device)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        with span("transfer"):
            return tensor.to(device)

    # Each tensor alone, since marking several lets all of them require gradients if one does.
    return with_backward_span("transfer", moved, tensor)
