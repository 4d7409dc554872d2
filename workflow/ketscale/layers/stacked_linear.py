"""Linear layers of models that torch.func.vmap stacks, with gradients in the layout of the weights.

torch.func.vmap's own rule has the gradient of the weights transposed: bringing it into place took longer than computing
it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import at_once, only_mapped


class StackedLinear(nn.Linear):
    """A linear layer, (n, inputs) -> (n, outputs); under vmap it is one product for all members."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The layer's outputs for inputs (..., inputs)."""
        if not only_mapped():
            return super().forward(input)
        rows = input.reshape(-1, self.in_features)
        terms = (rows, self.weight) if self.bias is None else (rows, self.weight, self.bias)
        return at_once(_Product.apply, *terms).view(*input.shape[:-1], self.out_features)


class _Product(torch.autograd.Function):
    """x (members, n, inputs), weight (members, outputs, inputs), bias (members, outputs) -> (members, n, outputs)."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("a stack of linear layers")
        x, weight = ctx.saved_tensors
        to_x = cotangent @ weight if ctx.needs_input_grad[0] else None
        to_weight = cotangent.mT @ x if ctx.needs_input_grad[1] else None
        return (to_x, to_weight, cotangent.sum(1)) if ctx.biased else (to_x, to_weight)
