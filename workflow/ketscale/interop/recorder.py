"""Records of what torch computes from tensors: as torch's own tracer makes them, which imports the compiler for seconds."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ketscale.errors import UserError
from ketscale.private_torch import DispatchMode, OpOverload, pytree


class Looked(RuntimeError):
    """The value of a tensor is asked for that depends on what is recorded."""


class Recorder(DispatchMode):
    """While it is entered, notes each operation of torch's in this thread, on whatever tensors.

    arguments: tensors whose values may be others when the record is replayed, and not be looked at. captured: tensors from
    outside that may be others too; operations on them give what must not be looked at.
    """

    def __init__(self, arguments: Sequence[torch.Tensor], captured: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._graph = Graph()
        # By their identities: tensors, which are kept alive for that, and the nodes that give them.
        self._nodes: dict[int, tuple[torch.Tensor, Node]] = {}
        # Addresses of entries that depend on arguments or random numbers: views of a tensor change with it.
        self._memory: set[int] = set()
        for number, tensor in enumerate(arguments):
            self._nodes[id(tensor)] = tensor, self._graph.placeholder(f"argument_{number}")
            self._memory.add(_memory(tensor))
        self._outside: dict[int, Node] = {}
        for number, tensor in enumerate(captured):
            self._outside.setdefault(id(tensor), self._graph.placeholder(f"outside_{number}"))
        self._constants: dict[str, torch.Tensor] = {}

    def __enter__(self) -> Recorder:
        self._before = RECORDER.set(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        RECORDER.reset(self._before)

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The result of an operation, which is noted."""
        arguments = args, kwargs or {}
        if any(isinstance(leaf, torch.Generator) for leaf in pytree.tree_leaves(arguments)):
            raise UserError(
                "from_qnode: the quantum function draws from a generator of random numbers; draw outside, and make the numbers "
                "an argument"
            )
        tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        if torch.Tag.data_dependent_output in func.tags:
            if any(map(self.depends, tensors)):
                raise Looked
            return func(*args, **arguments[1])
        # A tensor that `torch.tensor` makes of numbers is a constant, and an integer from outside is taken for one.
        new = func.overloadpacket is torch.ops.aten.lift_fresh
        depends = torch.Tag.nondeterministic_seeded in func.tags or any(
            self.depends(each) or (id(each) not in self._nodes and continuous(each) and not new)
            for each in tensors
        )
        result = func(*args, **arguments[1])
        nodes = pytree.tree_map_only(torch.Tensor, self._node, arguments)
        # A constant may be written into, at each replay.
        self._note(result, self._graph.call_function(torch.ops.aten.clone.default if new else func, *nodes))
        if depends:
            # Besides tensors there may be None, as for a gradient that is not asked for, or numbers.
            leaves = pytree.tree_leaves(result)
            self._memory.update(_memory(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))
        return result

    def depends(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's values depend on arguments, tensors from outside, or random numbers."""
        return id(tensor) in self._nodes and _memory(tensor) in self._memory

    def record(self, results: Sequence[torch.Tensor]) -> GraphModule:
        """The function from arguments and captured tensors to these results.

        Raises:
            UserError: there is a tensor from outside besides, by which gradients are asked for.
        """
        self._graph.output(list(map(self._node, results)))
        self._graph.eliminate_dead_code()
        used = {node.target for node in self._graph.nodes if node.op == "get_attr"}
        if any(tensor.requires_grad for name, tensor in self._constants.items() if name in used):
            raise UserError(
                "from_qnode: the quantum function uses a tensor from outside that requires a gradient: make it an "
                "argument"
            )
        # They may share their memory with arrays that change.
        constants = {name: tensor.detach().clone() for name, tensor in self._constants.items()}
        return GraphModule(constants, self._graph)

    def _node(self, tensor: torch.Tensor) -> Node:
        """The node that gives a tensor: one from outside is a constant, unless it was captured."""
        if id(tensor) in self._nodes:
            return self._nodes[id(tensor)][1]
        if id(tensor) in self._outside:
            return self._outside[id(tensor)]
        name = f"constant_{len(self._constants)}"
        self._constants[name] = tensor
        return self._graph.create_node("get_attr", name)

    def _note(self, result: Any, node: Node) -> None:
        if isinstance(result, torch.Tensor):
            self._nodes[id(result)] = result, node
        elif isinstance(result, list | tuple):
            for place, part in enumerate(result):
                self._note(part, self._graph.call_function(operator.getitem, (node, place)))


# The recorder at work, in this thread.
RECORDER: ContextVar[Recorder | None] = ContextVar("RECORDER", default=None)


def is_recorded(value: Any) -> bool:
    """Whether it is a tensor that an active recorder knows to depend on others."""
    recorder = RECORDER.get()
    return recorder is not None and isinstance(value, torch.Tensor) and recorder.depends(value)


def continuous(tensor: torch.Tensor) -> bool:
    """Whether it has numbers that can be differentiated by."""
    return tensor.is_floating_point() or tensor.is_complex()


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)
