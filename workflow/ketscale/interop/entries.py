"""The entries of its arguments that a recorded function returns: a record of pure indexing replayed as one gather."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.fx import GraphModule, Node

from ketscale.private_torch import OpOverload

# Functions of aten whose results are entries of their arguments, or these times or plus constants.
_PICKING = (
    "alias", "cat", "clone", "expand", "permute", "reshape", "select", "slice", "split", "squeeze", "stack", "t", "transpose",
    "unbind", "unsqueeze", "view",
)  # fmt: skip
_SCALING = ("add", "div", "mul", "neg", "sub")


class Entries(NamedTuple):
    """A result's entries: each is scale * (entry `places` of all arguments, flattened one after the other) + shift.

    All in double precision, of the result's shape. A constant has scale and place 0.
    """

    places: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor


def dependent(graph: GraphModule) -> set[Node]:
    """The nodes of a record that depend on its arguments."""
    nodes: set[Node] = set()
    for node in graph.graph.nodes:
        if node.op == "placeholder" or any(source in nodes for source in node.all_input_nodes):
            nodes.add(node)
    return nodes


def entries(graph: GraphModule, tensors: Sequence[torch.Tensor], count: int) -> list[Entries] | None:
    """The entries of the first `count` results, for arguments of these shapes; None if they are more than entries.

    Every operation of the record must be known to pick or scale. Then each result depends on one entry in a line, and
    three points give it.
    """
    moving = dependent(graph)
    if not all(tensor.is_floating_point() for tensor in tensors) or not all(
        _simple(node, moving) for node in moving if node.op not in ("placeholder", "output")
    ):
        return None
    sizes = [tensor.numel() for tensor in tensors]
    total = sum(sizes)
    places = torch.arange(1, total + 1, dtype=torch.float64)
    chance = torch.randn(total, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def at(point: torch.Tensor) -> list[torch.Tensor]:
        parts = zip(point.split(sizes), tensors, strict=True)
        with torch.no_grad():
            values = graph(*(part.reshape(tensor.shape).to(tensor.device) for part, tensor in parts))
        return [value.to("cpu", torch.float64) for value in values[:count]]

    points = torch.zeros_like(places), torch.ones_like(places), places, chance
    result = []
    for zero, one, place, expected in zip(*map(at, points), strict=True):
        scale = one - zero
        index = torch.where(scale == 0, 0, ((place - zero) / scale).round() - 1).long()
        if total and not bool(((index >= 0) & (index < total)).all()):
            return None
        actual = scale * chance[index] + zero if total else zero
        if not torch.allclose(actual, expected, rtol=1e-6, atol=1e-6):
            return None  # such as a random number in place of a constant
        result.append(Entries(index, scale, zero))
    return result


def _simple(node: Node, moving: set[Node]) -> bool:
    """Whether a node picks entries of its arguments, or scales or shifts them by constants."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload):
        return False
    name = node.target.overloadpacket.__name__
    if name in _PICKING:
        return True
    if name not in _SCALING or "rounding_mode" in node.kwargs:
        return False
    variable = [argument for argument in node.args if isinstance(argument, Node) and argument in moving]
    return len(variable) == 1 and (name != "div" or node.args[0] is variable[0])


def _one_stretch(index: torch.Tensor, tensors: Sequence[torch.Tensor]) -> tuple[int, int, int] | None:
    """The argument, the first entry and the end, if the entries are neighbours in their order."""
    count = index.numel()
    if not count or bool((index.diff() != 1).any()):
        return None
    first = int(index[0])
    for number, tensor in enumerate(tensors):
        if first < tensor.numel():
            return (number, first, first + count) if first + count <= tensor.numel() else None
        first -= tensor.numel()
    return None


class Picked:
    """Columns of entries, (..., columns), read from the arguments at each call.

    Equal columns are one; `places` says where each of the given ones is. Where the columns are a stretch of one
    argument, nothing is copied.
    """

    def __init__(
        self,
        columns: Sequence[Entries],
        shape: tuple[int, ...],
        tensors: Sequence[torch.Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        keys = [tuple(tuple(part.reshape(-1).tolist()) for part in column) for column in columns]
        unique = sorted(set(keys))
        self.places = [unique.index(name) for name in keys]
        self._shape = (*shape, len(unique))
        picks = [columns[keys.index(name)] for name in unique]

        def joined(part: int) -> torch.Tensor:
            if not picks:
                return torch.empty(self._shape, dtype=torch.float64)
            return torch.stack([column[part].expand(shape) for column in picks], dim=-1)

        index, scale, shift = (joined(part) for part in range(3))
        index = index.long().reshape(-1)
        self._dtype, self._device = dtype, device
        self._index = index.to(device)
        self._scale = None if bool((scale == 1).all()) else scale.to(device, dtype)
        self._shift = None if bool((shift == 0).all()) else shift.to(device, dtype)
        self._stretch = _one_stretch(index, tensors) if self._scale is None and self._shift is None else None
        # A batch without rows still has columns, which depend on the arguments.
        constant = not picks or (scale.numel() > 0 and bool((scale == 0).all()))
        self._constant = shift.to(device, dtype) if constant else None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The columns of these arguments, (..., columns)."""
        if self._stretch is not None:
            number, first, end = self._stretch
            tensor = tensors[number].to(self._device, self._dtype)
            if tensor.shape == self._shape:
                return tensor
            stretch = tensor if tensor.numel() == end - first else tensor.reshape(-1)[first:end]
            return stretch.reshape(self._shape)
        if self._constant is not None:
            return self._constant
        # Numbers that are written in the circuit are on the CPU.
        flat = [tensor.reshape(-1).to(self._device, self._dtype) for tensor in tensors]
        values = (flat[0] if len(flat) == 1 else torch.cat(flat))[self._index].reshape(self._shape)
        if self._scale is not None:
            values = values * self._scale
        return values if self._shift is None else values + self._shift
