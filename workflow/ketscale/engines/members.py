"""Rules of torch.func.vmap for functions of our own, which see the members of a stack all at once."""

from __future__ import annotations

from typing import Any

import torch


def leading(info: Any, tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
    """A tensor with the members in front, (members, ...), whether or not they differ in it.

    info, dim: what torch hands to a rule: how many members there are, and where they are, None if they share it.
    """
    return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def one_by_one(
    function: type[torch.autograd.Function],
    info: Any,
    in_dims: tuple[int | None, ...],
    *tensors: torch.Tensor,
) -> tuple[torch.Tensor, int]:
    """The rule of a function whose arithmetic takes longer than its call: a call for each member."""
    rows = (leading(info, tensor, dim) for tensor, dim in zip(tensors, in_dims, strict=True))
    return torch.stack([function.apply(*member) for member in zip(*rows, strict=True)]), 0
