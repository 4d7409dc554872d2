"""Records of how a tape's numbers come from tensors, one for each set of shapes, and compared.

What is recorded is a function of tensors that gives a tape's `Structure` and its numbers. It runs once in a `Recorder`,
which does what torch's own tracer does, whose import takes seconds; every later call replays the record alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ketscale.engines.circuits.simulator import Simulator
from ketscale.errors import UserError
from ketscale.interop.replay import Replay, Structure
from ketscale.interop.tape import LOCK
from ketscale.private_torch import DispatchMode, OpOverload, pytree

# From arguments to what is recorded.
Run = Callable[[Sequence[torch.Tensor]], tuple[Structure, list[torch.Tensor]]]

# More shapes than any program has.
MOST_WAYS = 256


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
        given = args, kwargs or {}
        if any(isinstance(leaf, torch.Generator) for leaf in pytree.tree_leaves(given)):
            raise UserError(
                "from_qnode: the quantum function draws from a generator of random numbers; draw outside, and make the numbers "
                "an argument"
            )
        tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        if torch.Tag.data_dependent_output in func.tags:
            if any(map(self.depends, tensors)):
                raise Looked
            return func(*args, **given[1])
        # A tensor that `torch.tensor` makes of numbers is a constant, and an integer from outside is taken for one.
        new = func.overloadpacket is torch.ops.aten.lift_fresh
        depends = torch.Tag.nondeterministic_seeded in func.tags or any(
            self.depends(each) or (id(each) not in self._nodes and continuous(each) and not new)
            for each in tensors
        )
        result = func(*args, **given[1])
        nodes = pytree.tree_map_only(torch.Tensor, self._node, given)
        # A constant may be written into, at each replay anew.
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
        kept = {node.target for node in self._graph.nodes if node.op == "get_attr"}
        if any(tensor.requires_grad for name, tensor in self._constants.items() if name in kept):
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
    """Whether it is a tensor of which a recorder at work knows that it depends on others."""
    recorder = RECORDER.get()
    return recorder is not None and isinstance(value, torch.Tensor) and recorder.depends(value)


def continuous(tensor: torch.Tensor) -> bool:
    """Whether it has numbers that can be differentiated by."""
    return tensor.is_floating_point() or tensor.is_complex()


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


class Records:
    """The records of one function, by its shapes and whatever else is in a key.

    simulator: evaluates them. dtype: of their results, None for the arguments'.
    """

    def __init__(self, simulator: Simulator, dtype: torch.dtype | None = None) -> None:
        self._simulator = simulator
        self._dtype = dtype
        self.ways: dict[object, Replay] = {}

    def record(
        self, key: object, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
    ) -> Replay:
        """The record for tensors of these shapes, made now if there is none.

        tensors: the arguments of `run`. captured: what it reads besides.

        Raises:
            UserError: the function cannot be recorded.
        """
        # As PennyLane, torch records for one thread at a time.
        with LOCK, torch.inference_mode(False):
            way = self.ways.get(key)
            if way is None:
                way = self._recorded(tensors, captured, run)
                keep(self.ways, key, way)
        return way

    def check(
        self, way: Replay, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
    ) -> None:
        """Compare a record with the function where tensors have values at which it was not compared.

        Raises:
            UserError: they differ, as they do if numbers take a way that torch does not see.
        """
        changed = way.new([*tensors, *captured])
        if changed:
            with LOCK:
                _compare(way, tensors, captured, run)
                way.compared(changed)

    def _recorded(
        self, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
    ) -> Replay:
        """Run the function once, on tensors that torch records."""
        tensors = [tensor.detach().clone() for tensor in tensors]
        given = [tensor.clone() for tensor in tensors]
        recorder = Recorder(given, captured)
        try:
            with recorder:
                structure, values = run(given)
        except Looked as error:
            # If PennyLane looks only to say what is wrong, it says so now.
            run(tensors)
            raise UserError(
                "from_qnode: the quantum function, or the decomposition of one of its operations, looks at the value of a "
                "tensor: write from_qnode(qnode, trace='always'), and keep what is differentiated a tensor, since a number that is "
                "taken out of one (.item(), float()) has no gradient"
            ) from error
        graph = recorder.record(values)
        way = Replay(structure, graph, [*tensors, *captured], len(tensors), self._simulator, self._dtype)
        _compare(way, tensors, captured, run)
        return way


def keep(kept: dict[object, Any], key: object, value: Any) -> None:
    """Put something into a dictionary that forgets the oldest."""
    if key not in kept and len(kept) >= MOST_WAYS:
        del kept[next(iter(kept))]
    kept[key] = value


def _compare(
    way: Replay, tensors: Sequence[torch.Tensor], captured: Sequence[torch.Tensor], run: Run
) -> None:
    """Compare the record with the function itself, in values and gradients.

    Raises:
        UserError: they differ.
    """
    with torch.inference_mode(False), torch.enable_grad():
        fresh = [tensor.detach().clone().requires_grad_(continuous(tensor)) for tensor in tensors]
        structure, values = run(fresh)
        given = [*fresh, *captured]
        replayed = way.numbers(given)
        trainable = [tensor for tensor in given if tensor.requires_grad]
        if structure.same(way.structure) and all(
            torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True)
            for pair in ((values, replayed), (_slopes(values, trainable), _slopes(replayed, trainable)))
            for a, b in zip(*pair, strict=True)
        ):
            return
    raise UserError(
        "from_qnode: the circuit changes with its arguments, or with random numbers, in a way that torch cannot follow, "
        "such as NumPy or .tolist(): use torch's functions, or write from_qnode(qnode, trace='always')"
    )


def _slopes(values: Sequence[torch.Tensor], trainable: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The gradients of a sum of all values with factors that differ."""
    terms = [
        ((number + 1) * value * torch.arange(1, value.numel() + 1, device=value.device).reshape(value.shape))
        .sum()
        .real
        for number, value in enumerate(values)
        if value.requires_grad
    ]
    if not terms:
        return [torch.zeros_like(tensor) for tensor in trainable]
    return torch.autograd.grad(terms, trainable, allow_unused=True, materialize_grads=True)
