"""Linear layers of several members at once, whose gradients are in the layout of the weights.

torch.func.vmap's own rule has the gradient of the weights transposed: bringing it into place took longer than computing
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ketscale.engines.members import leading


class StackedLinear(TorchFunctionMode):
    """Inside the block, `torch.nn.functional.linear` of members under torch.func.vmap is one product of matrices."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function is not nn.functional.linear:
            return function(*args, **(kwargs or {}))
        return _linear(*args, **(kwargs or {}))


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    made: torch.Tensor = _Linear.apply(input.reshape(-1, input.shape[-1]), weight, bias)
    return made.view(*input.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    """x (..., n, inputs), weight (..., outputs, inputs), bias (..., outputs) or None -> (..., n, outputs)."""

    @staticmethod
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if bias is None:
            return x @ weight.mT
        if x.ndim == 2:
            return torch.addmm(bias, x, weight.mT)
        return torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, _ = ctx.needs_input_grad
        return (
            cotangent @ weight if to_x else None,
            cotangent.mT @ x if to_weight else None,
            cotangent.sum(-2) if ctx.biased else None,
        )

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, int]:
        members = [
            tensor if tensor is None else leading(info, tensor, dim)
            for tensor, dim in zip((x, weight, bias), in_dims, strict=True)
        ]
        return _Linear.apply(*members), 0
