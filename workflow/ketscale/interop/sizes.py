"""The record of a batch size that was not recorded, from the records of two others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node


class _Unlike(Exception):
    """Two records differ by more than a batch size."""


class Sizes(NamedTuple):
    """The batch sizes of two records, and the one that is wanted."""

    first: int
    second: int
    wanted: int

    def number(self, first: Any, second: Any) -> Any:
        """What a constant of both records becomes: a whole number may depend linearly on the batch size."""
        if type(first) is not type(second):
            raise _Unlike
        if isinstance(first, torch.Tensor):
            if not torch.equal(first, second):
                raise _Unlike
            return first
        if first == second or first != first:
            return first
        steps, rest = divmod((second - first) * (self.wanted - self.first), self.second - self.first)
        if type(first) is not int or rest:
            raise _Unlike
        return first + steps


def sizes_of(first: Sequence[int], second: Sequence[int], wanted: Sequence[int]) -> Sizes | None:
    """The batch sizes, from the sizes of all dimensions of the arguments; None if more than one of these changes."""
    changed = {
        Sizes(*each) for each in zip(first, second, wanted, strict=True) if not each[0] == each[1] == each[2]
    }
    return changed.pop() if len(changed) == 1 and len(set(next(iter(changed))[:2])) == 2 else None


def resized(first: GraphModule, second: GraphModule, sizes: Sizes) -> GraphModule | None:
    """The record at the wanted size, as long as nothing but whole numbers depends on it; None if something else does."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    pairs: dict[Node, Node] = {}

    def argument(a: Any, b: Any) -> Any:
        if isinstance(a, Node):
            if pairs[a] is not b:
                raise _Unlike
            return copies[a]
        if isinstance(a, list | tuple):
            if type(a) is not type(b) or len(a) != len(b):
                raise _Unlike
            return type(a)(map(argument, a, b))
        return sizes.number(a, b)

    try:
        for node, other in zip(first.graph.nodes, second.graph.nodes, strict=True):
            if (node.op, node.kwargs.keys()) != (other.op, other.kwargs.keys()):
                raise _Unlike
            if node.op == "get_attr":
                sizes.number(getattr(first, str(node.target)), getattr(second, str(other.target)))
            elif node.target != other.target:
                raise _Unlike
            args = tuple(map(argument, node.args, other.args))
            kwargs = {name: argument(value, other.kwargs[name]) for name, value in node.kwargs.items()}
            pairs[node] = other
            copies[node] = graph.create_node(node.op, node.target, args, kwargs)
    except (_Unlike, ValueError):
        return None
    return GraphModule(first, graph)
