"""`from_qnode`: a PennyLane QNode converted once, so that a call costs the circuit and not PennyLane's tape.

The quantum function runs once for each set of shapes, and of what else it reads. Meanwhile torch records how the numbers
of its operations come from its arguments (`make_fx`), and every later call replays that record alone. If the record only picks, reorders and
scales entries of the arguments, it becomes one gather, or no operation at all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum
from typing import Any, Literal

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.transforms import transformed
from ketscale.errors import UserError
from ketscale.optional import needed_for
from ketscale.private_torch import is_recorded, pytree, unrecorded

with needed_for("ketscale.from_qnode"):
    import pennylane as qml
    from pennylane.devices.preprocess import validate_device_wires
    from pennylane.queuing import AnnotatedQueue
    from pennylane.tape import QuantumScript

    from ketscale.interop import tape as tapes
    from ketscale.interop.device import decompose_once
    from ketscale.interop.outside import Outside
    from ketscale.interop.replay import Evaluator, Replay, Structure, precision, sizes_in
    from ketscale.interop.sizes import resized, sizes_of

# Devices whose exact results are those of a pure state.
PURE = ("default.qubit", "lightning.", "reference.qubit", "ketscale.fused")

# What torch says where the value of a tensor is needed that it only watches.
LOOKED = "tracing tensor"

# torch records for one thread at a time.
LOCK = threading.RLock()

# What arguments may be, besides tensors and containers of them: they do not change.
CONSTANTS = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic)

# What is a tensor, exactly and quickly asked; and what becomes one.
TENSORS = (torch.Tensor, torch.nn.Parameter)
NUMPY = (np.ndarray, np.number)

# More shapes than any program has.
MOST_WAYS = 256


def from_qnode(qnode: Any, trace: Literal["once", "always"] = "once") -> Converted:
    """A function of the same arguments that evaluates a QNode's circuit exactly with `fused`, differentiably in torch.

    Whatever device the QNode names, the simulation is exact and needs no shots. Tensors among the arguments, nested or
    not, and tensors that the quantum function reads from outside are what the circuit is differentiated by, once. A
    result has the arguments' precision and device, and the QNode's nesting; it is NumPy's where the arguments are.

    trace: `once` runs the quantum function at the first call with its shapes, and again where something else has changed
        that it reads: another argument, or a number, text, array or function outside (`interop.outside`). `always`
        runs it at every call, as PennyLane does, and lets it do what it likes with values.

    Raises:
        UserError: it is no QNode; it has shots, transforms, mid-circuit measurements, or a device of mixed states.
            At a call: a state is prepared that is not normalised, an angle is complex; with `once` also, the operations
            depend on values of tensors, or something outside is read of which changes cannot be seen.
    """
    if not isinstance(qnode, qml.QNode):
        raise UserError(
            f"from_qnode takes a QNode, not {type(qnode).__name__}: decorate the function with qml.qnode"
        )
    if trace not in ("once", "always"):
        raise UserError(f"from_qnode: trace is 'once' or 'always', not {trace!r}")
    if not str(qnode.device.name).startswith(PURE):
        raise UserError(
            f"from_qnode simulates pure states, as {', '.join(PURE)} do, and not {qnode.device.name}"
        )
    if qnode.shots or qnode.device.shots:
        raise UserError(
            "from_qnode computes exact results: call the QNode with device ketscale.fused for shots"
        )
    if len(qnode.compile_pipeline):
        raise UserError("from_qnode does not run transforms: call the QNode with device ketscale.fused")
    return Converted(qnode, trace)


class Converted:
    """What `from_qnode` returns, for `qml.qnn.TorchLayer` too. Copies and pickles are converted anew.

    func: the quantum function. interface: for PennyLane.
    """

    interface = "torch"

    def __init__(self, qnode: Any, trace: str) -> None:
        self.qnode = qnode
        self.func = qnode.func
        self.trace = trace
        self._simulator: Simulator = Fused()
        self._outside = Outside(qnode.func)
        self._ways: dict[object, Replay] = {}
        # The first records of two sizes of everything that differs in the sizes of the arguments' dimensions alone.
        self._sized: dict[object, list[Replay]] = {}
        # Shapes with which the quantum function looks at integers, which then are no tensors to it but values.
        self._by_value: set[object] = set()

    def __repr__(self) -> str:
        return f"<{self.qnode!r} on fused>"

    def __reduce__(self) -> tuple[type[Converted], tuple[Any, str]]:
        return Converted, (self.qnode, self.trace)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The QNode's results; see `from_qnode`."""
        leaves: Sequence[Any] = (*args, *kwargs.values()) if kwargs else args
        in_numpy = False
        if all(type(value) in TENSORS for value in leaves):
            key: object = (*kwargs, *[(value.shape, value.dtype, value.device) for value in leaves])
        else:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            if any(isinstance(leaf, NUMPY) for leaf in leaves):
                in_numpy = not any(isinstance(leaf, torch.Tensor) for leaf in leaves)
                leaves = [_from_numpy(leaf) if isinstance(leaf, NUMPY) else leaf for leaf in leaves]
                args, kwargs = pytree.tree_unflatten(leaves, spec)
            key = (spec, *map(_key, leaves))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if transformed():
            raise UserError("from_qnode is not differentiated or mapped by torch.func: use ketscale.Layer")
        kind = tensors[0].device.type if tensors else "cpu"
        with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
            results = self._answer(key, tensors, args, kwargs)
        return pytree.tree_map(_to_numpy, results) if in_numpy else results

    def _answer(self, key: object, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
        if self.trace == "always":
            structure, values = _run(self.qnode, args, kwargs)
            return Evaluator(
                structure, self._simulator, precision(tensors or values), tapes.device_of(values)
            ).evaluate(values)
        if key in self._by_value:
            key = key, *[_value(tensor) for tensor in tensors if not _continuous(tensor)]
        outside, captured = self._outside.now()
        way = self._ways.get((key, outside))
        if way is None:
            with LOCK, torch.inference_mode(False):
                way = self._converted(key, args, kwargs)
            captured = self._outside.now()[1]
        given = [*tensors, *captured]
        changed = way.new(given)
        if changed:
            with LOCK:
                _compare(self.qnode, way, args, kwargs, captured)
                way.compared(changed)
        return way(given)

    def _converted(self, key: object, args: Any, kwargs: Any) -> Replay:
        """How calls like this one are answered from now on."""
        self._outside.look()
        outside, captured = self._outside.now()
        if (key, outside) in self._ways:
            return self._ways[key, outside]
        way = self._resized(key, outside, args, kwargs, captured)
        if way is None:
            key, way = self._recorded(key, args, kwargs, captured)
            alike = _sizeless(key), outside
            known = self._sized.get(alike, [])
            if len(known) < 2:
                _keep(self._sized, alike, [*known, way])
        _keep(self._ways, (key, outside), way)
        return way

    def _recorded(
        self, key: object, args: Any, kwargs: Any, captured: Sequence[torch.Tensor]
    ) -> tuple[object, Replay]:
        try:
            return key, _converted(self.qnode, self._simulator, args, kwargs, captured)
        except _Looked:
            way = _converted(self.qnode, self._simulator, args, kwargs, captured, by_value=True)
            leaves = pytree.tree_leaves((args, kwargs))
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            self._by_value.add(key)
            return (key, *[_value(tensor) for tensor in tensors if not _continuous(tensor)]), way

    def _resized(
        self, key: object, outside: object, args: Any, kwargs: Any, captured: Sequence[torch.Tensor]
    ) -> Replay | None:
        """A record made from those of two other batch sizes, if it is what the quantum function does."""
        known = self._sized.get((_sizeless(key), outside), [])
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if len(known) < 2:
            return None
        first, second = known
        sizes = sizes_of(first.sizes, second.sizes, sizes_in(tensors))
        graph = None if sizes is None else resized(first.graph, second.graph, sizes)
        if sizes is None or graph is None or first.structure.batch is None or second.structure.batch is None:
            return None
        structure = first.structure._replace(
            batch=sizes.number(first.structure.batch, second.structure.batch)
        )
        way = Replay(structure, graph, [*tensors, *captured], len(tensors), self._simulator)
        if not _agrees(self.qnode, way, args, kwargs, captured):
            return None
        way.compared(range(len(tensors)))
        return way


def _keep(kept: dict[object, Any], key: object, value: Any) -> None:
    """Put something into a dictionary that forgets the oldest."""
    if len(kept) >= MOST_WAYS:
        del kept[next(iter(kept))]
    kept[key] = value


def _sizeless(key: Any) -> object:
    """A key of calls without the sizes of dimensions."""
    if isinstance(key, torch.Size):
        return len(key)
    return tuple(map(_sizeless, key)) if type(key) is tuple else key


class _Looked(UserError):
    """The quantum function looked at the value of a tensor that is recorded."""


class _Integers(TorchDispatchMode):
    """Lets integers that torch does not record be computed as they are, so that their values can be read."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        values = bool(tensors) and not any(_continuous(each) or is_recorded(each) for each in tensors)
        if values or func.overloadpacket is torch.ops.aten.arange:
            with unrecorded():
                made = func(*args, **(kwargs or {}))
            if not any(
                _continuous(leaf) for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)
            ):
                return made
        return func(*args, **(kwargs or {}))


def _continuous(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _value(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().numpy().tobytes()


def _from_numpy(value: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(value, order="C"))


def _to_numpy(result: torch.Tensor) -> Any:
    """As PennyLane gives it: scalars are numbers."""
    return result.detach().numpy()[()]


def _key(leaf: Any) -> object:
    """What a conversion depends on: of tensors all but the values."""
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.dtype, leaf.device
    if not isinstance(leaf, CONSTANTS):
        raise UserError(
            f"from_qnode cannot tell arguments of type {type(leaf).__name__} apart: pass a torch tensor or a NumPy array"
        )
    return type(leaf), leaf


def _run(qnode: Any, args: Any, kwargs: Any) -> tuple[Structure, list[torch.Tensor]]:
    """The quantum function's tape: its structure, and its numbers.

    The numbers are those of inputs, weights and phases, the factors of the Pauli words, and a prepared state.
    """
    with AnnotatedQueue() as queue:
        output = qnode.func(*args, **kwargs)
    tape = QuantumScript.from_queue(queue)
    measured, spec = pytree.tree_flatten(output)
    if len(measured) != len(tape.measurements) or any(
        a is not b for a, b in zip(measured, tape.measurements, strict=True)
    ):
        raise UserError(
            "from_qnode: return the measurements, all of them and in the order in which they are made"
        )
    if any(isinstance(op, qml.ops.MidMeasure | qml.ops.Conditional) for op in tape.operations):
        raise UserError(
            "from_qnode has no mid-circuit measurements: call the QNode with device ketscale.fused"
        )
    named = {wire: int(wire) for wire in tape.wires if isinstance(wire, torch.Tensor)}
    if named:
        (tape,), _ = qml.map_wires(tape, named)
    (tape,), _ = validate_device_wires(tape, qnode.device.wires, name="from_qnode")
    tape = _decomposed(tape, qnode.device.wires).map_to_standard_wires()
    qubits = tape.num_wires
    start = tapes.preparation(tape)
    gates, numbers = tapes.read(tape.operations[start is not None :])
    asked = tapes.expectations(tape.measurements, qubits)
    if asked is None and any(
        isinstance(value, torch.Tensor)
        for m in tape.measurements
        if m.obs is not None
        for value in m.obs.data
    ):
        raise UserError(
            "from_qnode: tensors in observables can only be coefficients of Pauli words in expectation values: "
            "call the QNode with device ketscale.fused"
        )
    structure = Structure(
        qubits, gates, len(numbers.inputs), len(numbers.weights), len(numbers.phases), start is not None, tape.batch_size,
        None if asked is None else asked.words, () if asked is None else asked.places, spec, tape.measurements,
    )  # fmt: skip
    values = [*numbers.inputs, *numbers.weights, *numbers.phases]
    if asked is not None:
        values += [factor for row in asked.coefficients for factor in row]
    tensors = [v if isinstance(v, torch.Tensor) else torch.as_tensor(np.asarray(v)) for v in values]
    if any(tensor.is_complex() for tensor in tensors):
        raise UserError(f"from_qnode: {tapes.COMPLEX}")
    if start is not None:
        tensors.append(torch.as_tensor(start.state_vector(wire_order=range(qubits)).reshape(-1, 2**qubits)))
    return structure, tensors


def _decomposed(tape: QuantumScript, wires: Any) -> QuantumScript:
    """The tape of operations that `fused` takes."""
    instead = "call the QNode with device ketscale.fused"
    try:
        (tape,), _ = decompose_once(tape, wires)
    except Exception as error:
        # PennyLane has no type for a decomposition that takes no batch: it raises whatever the arithmetic does.
        if tape.batch_size is None or LOOKED in str(error):
            raise
        raise UserError(
            f"from_qnode: PennyLane cannot decompose a batch of these operations ({type(error).__name__}): {instead}"
        ) from error
    for operation in tape.operations[tapes.preparation(tape) is not None :]:
        if not tapes.native(operation):
            raise UserError(f"from_qnode: {operation.name} rests on a matrix that tensors decide: {instead}")
    return tape


def _converted(
    qnode: Any,
    simulator: Simulator,
    args: Any,
    kwargs: Any,
    captured: Sequence[torch.Tensor],
    by_value: bool = False,
) -> Replay:
    """Run the quantum function once, on tensors that torch records; `by_value` leaves out integers."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    found: list[Structure] = []

    def numbers(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        if by_value:
            filled = [
                old if isinstance(old, torch.Tensor) and not _continuous(old) else new
                for old, new in zip(leaves, filled, strict=True)
            ]
        with _Integers():
            structure, values = _run(qnode, *pytree.tree_unflatten(filled, spec))
        found.append(structure)
        return values

    tensors = [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    try:
        graph = make_fx(numbers)(*tensors)
    except RuntimeError as error:
        if LOOKED not in str(error):
            raise
        # Where PennyLane looks only to say what is wrong, it says so now.
        plain = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        _run(qnode, *pytree.tree_unflatten(plain, spec))
        raise _Looked(
            "from_qnode: the quantum function, or the decomposition of one of its operations, looks at the value of a "
            "tensor: write from_qnode(qnode, trace='always')"
        ) from error
    _take(graph, captured)
    way = Replay(found[0], graph, [*tensors, *captured], len(tensors), simulator)
    _compare(qnode, way, args, kwargs, captured)
    try:
        places, names = pytree.tree_map(_moved, (args, kwargs))
        _run(qnode, places, names)
    except UserError:
        raise
    except Exception:
        # The function cannot run there, whatever the reason, such as a state that is not normalised any more.
        return way
    _compare(qnode, way, places, names, captured)
    return way


def _take(graph: GraphModule, captured: Sequence[torch.Tensor]) -> None:
    """Make tensors from outside arguments of a record, after those that it has."""
    nodes = list(graph.graph.nodes)
    last = [node for node in nodes if node.op == "placeholder"]
    taken: list[Node] = []
    for number in range(len(captured)):
        with graph.graph.inserting_after(last[-1]) if last else graph.graph.inserting_before(nodes[0]):
            taken.append(graph.graph.placeholder(f"outside_{number}"))
        last.append(taken[-1])
    for node in nodes:
        if node.op != "get_attr":
            continue
        constant = getattr(graph, str(node.target))
        same = [new for new, tensor in zip(taken, captured, strict=True) if tensor is constant]
        if same:
            node.replace_all_uses_with(same[0])
        elif constant.requires_grad:
            raise UserError(
                "from_qnode: the quantum function uses a tensor from outside that requires a gradient: make it an "
                "argument"
            )
        else:
            # It may share its memory with an array that changes.
            setattr(graph, str(node.target), constant.detach().clone())
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _moved(leaf: Any) -> Any:
    """A tensor with every entry a little elsewhere, the same at every call."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
        return leaf
    drawn = torch.rand(leaf.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return leaf.detach() + (0.01 + 0.1 * drawn).to(leaf)


def _compare(qnode: Any, way: Replay, args: Any, kwargs: Any, captured: Sequence[torch.Tensor]) -> None:
    """Compare the record with the quantum function itself.

    Raises:
        UserError: they differ, as they do if numbers take a way that torch does not see.
    """
    if not _agrees(qnode, way, args, kwargs, captured):
        raise UserError(
            "from_qnode: the circuit changes with its arguments, or with random numbers, in a way that torch cannot follow, "
            "such as NumPy or .tolist(): use torch's functions, or write from_qnode(qnode, trace='always')"
        )


def _agrees(qnode: Any, way: Replay, args: Any, kwargs: Any, captured: Sequence[torch.Tensor]) -> bool:
    """Whether a record and the quantum function itself give the same values and gradients."""
    with torch.inference_mode(False), torch.enable_grad():
        leaves, spec = pytree.tree_flatten((args, kwargs))
        fresh = [
            leaf.detach().clone().requires_grad_(leaf.is_floating_point())
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in leaves
        ]
        tensors = [*(leaf for leaf in fresh if isinstance(leaf, torch.Tensor)), *captured]
        structure, values = _run(qnode, *pytree.tree_unflatten(fresh, spec))
        replayed = way.graph(*tensors)
        trainable = [tensor for tensor in tensors if tensor.requires_grad]
        return structure.same(way.structure) and all(
            torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True)
            for pair in ((values, replayed), (_slopes(values, trainable), _slopes(replayed, trainable)))
            for a, b in zip(*pair, strict=True)
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
