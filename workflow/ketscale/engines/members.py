"""Functions that see the members of torch.func.vmap all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ketscale.autograd_function import at_once
from ketscale.private_torch import is_mapped, only_mapped


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


def batched(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """The result of a function that takes members or none, (..., *shape): under vmap in one call of all members.

    So each of its operators takes as long as without vmap, which for small tensors is most of the time.
    """
    return at_once(function, *tensors) if only_mapped() else function(*tensors)


def selected(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The rows (*n, ...) of a table (rows, ...), for int64 (*n) on its device."""

    def of_all(rows: torch.Tensor) -> torch.Tensor:
        return table.index_select(0, rows.flatten()).unflatten(0, rows.shape)

    if only_mapped() and not is_mapped(table):
        # torch's own rule copies the table's rows number by number.
        return at_once(of_all, rows)
    # A third faster than indexing, which allows for more.
    return table.index_select(0, rows) if rows.ndim == 1 else of_all(rows)
