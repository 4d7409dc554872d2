"""Functions that see the members of torch.func.vmap all at once."""

from __future__ import annotations

from collections.abc import Callable
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


def only_mapped() -> bool:
    """Whether torch.func does nothing but one vmap: autograd alone is outside of it."""
    if not torch._C._are_functorch_transforms_active():
        return False
    from torch._C import _functorch

    top = _functorch.peek_interpreter_stack()
    return top is not None and top.level() == 1 and top.key() == _functorch.TransformType.Vmap


def at_once(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """A member's result of a function that takes the tensors of all members, (members, ...), and gives (members, ...).

    Only where `only_mapped`. It is what torch does with the rule of an autograd function, of which each call takes
    longer than a small circuit.
    """
    # Torch's own names, which another version may change: only who stacks models needs them.
    from torch._C import _functorch
    from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter

    interpreter = retrieve_current_functorch_interpreter()
    assert isinstance(interpreter, VmapInterpreter)
    level, members = interpreter.level(), interpreter.batch_size()
    every = []
    for tensor in tensors:
        if _functorch.is_batchedtensor(tensor) and _functorch.maybe_get_level(tensor) == level:
            dim = _functorch.maybe_get_bdim(tensor)
            plain = _functorch.get_unwrapped(tensor)
            every.append(plain if dim == 0 else plain.movedim(dim, 0))
        else:
            every.append(tensor.expand(members, *tensor.shape))
    with interpreter.lower():
        made = function(*every)
    return _functorch._add_batch_dim(made, 0, level)


def together(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """The result of a function that takes members or none, (..., *shape): under vmap in one call of all members.

    So each of its operators takes as long as without vmap, which for small tensors is most of the time.
    """
    return at_once(function, *tensors) if only_mapped() else function(*tensors)


def selected(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The rows (n, ...) of a table (rows, ...), for int64 (n,) on its device."""
    if not only_mapped() or torch._C._functorch.is_batchedtensor(table):
        # A third faster than indexing, which allows for more.
        return table.index_select(0, rows)

    def of_all(rows: torch.Tensor) -> torch.Tensor:
        return table.index_select(0, rows.flatten()).unflatten(0, rows.shape)

    # torch's own rule copies the table's rows number by number.
    return at_once(of_all, rows)
