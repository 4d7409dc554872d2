"""`from_qnode`: a PennyLane QNode converted once, so that a call costs the circuit and not PennyLane's tape.

The quantum function runs once for each set of shapes. Meanwhile torch records how the numbers of its operations come
from its arguments (`make_fx`), and every later call replays that record alone. If the record only picks, reorders and
scales entries of the arguments, it becomes one gather, or no operation at all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.transforms import transformed
from ketscale.errors import UserError
from ketscale.optional import needed_for
from ketscale.private_torch import pytree

with needed_for("ketscale.from_qnode"):
    import pennylane as qml
    from pennylane.devices.preprocess import validate_device_wires
    from pennylane.queuing import AnnotatedQueue
    from pennylane.tape import QuantumScript

    from ketscale.interop import tape as tapes
    from ketscale.interop.device import decompose_once
    from ketscale.interop.replay import Replay, Structure

# Devices whose exact results are those of a pure state.
PURE = ("default.qubit", "lightning.", "reference.qubit", "ketscale.fused")

# What torch says where the value of a tensor is needed that it only watches.
LOOKED = "tracing tensor"

# torch records for one thread at a time.
LOCK = threading.RLock()

# What arguments may be, besides tensors and containers of them: they do not change.
CONSTANTS = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic)

# More shapes than any program has.
MOST_WAYS = 256


def from_qnode(qnode: Any) -> Converted:
    """A function of the same arguments that evaluates a QNode's circuit exactly with `fused`, differentiably in torch.

    Whatever device the QNode names, the simulation is exact and needs no shots. Tensors among the arguments, nested or
    not, are what the circuit is differentiated by, once; a result has the arguments' precision and device, and the
    QNode's nesting. Everything else is taken as it is at the first call with its shapes: other arguments, and what
    the quantum function reads from outside, such as globals.

    Raises:
        UserError: it is no QNode; it has shots, transforms, mid-circuit measurements, or a device of mixed states.
            At a call: the operations depend on values of tensors, or on a tensor from outside that could be trained.
    """
    if not isinstance(qnode, qml.QNode):
        raise UserError(
            f"from_qnode takes a QNode, not {type(qnode).__name__}: decorate the function with qml.qnode"
        )
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
    return Converted(qnode)


class Converted:
    """What `from_qnode` returns. Copies and pickles are converted anew."""

    def __init__(self, qnode: Any) -> None:
        self.qnode = qnode
        self._simulator: Simulator = Fused()
        self._ways: dict[object, Replay] = {}

    def __repr__(self) -> str:
        return f"<{self.qnode!r} on fused>"

    def __reduce__(self) -> tuple[type[Converted], tuple[Any]]:
        return Converted, (self.qnode,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The QNode's results; see `from_qnode`."""
        if not kwargs and all(type(value) is torch.Tensor for value in args):
            leaves: Sequence[Any] = args
            key: object = tuple((value.shape, value.dtype, value.device) for value in args)
        else:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            key = (spec, tuple(map(_key, leaves)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if transformed():
            raise UserError("from_qnode is not differentiated or mapped by torch.func: use ketscale.Layer")
        way = self._ways.get(key) or self._converted(key, args, kwargs)
        if way.traced is not None and not all(map(torch.equal, way.traced, tensors)):
            with LOCK:
                _compare(self.qnode, way, args, kwargs)
                way.traced = None
        kind = tensors[0].device.type if tensors else "cpu"
        if not torch.is_autocast_enabled(kind):
            return way(tensors)
        with torch.autocast(kind, enabled=False):
            return way(tensors)

    def _converted(self, key: object, args: Any, kwargs: Any) -> Replay:
        with LOCK, torch.inference_mode(False):
            way = self._ways.get(key)
            if way is None:
                way = _converted(self.qnode, self._simulator, args, kwargs)
                if len(self._ways) >= MOST_WAYS:
                    self._ways.clear()
                self._ways[key] = way
            return way


def _key(leaf: Any) -> object:
    """What a conversion depends on: of tensors all but the values."""
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.dtype, leaf.device
    if not isinstance(leaf, CONSTANTS):
        raise UserError(
            f"from_qnode cannot tell arguments of type {type(leaf).__name__} apart: pass a torch tensor"
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
    if start is not None:
        values.append(start.state_vector(wire_order=range(qubits)).reshape(-1, 2**qubits))
    return structure, [v if isinstance(v, torch.Tensor) else torch.as_tensor(np.asarray(v)) for v in values]


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


def _converted(qnode: Any, simulator: Simulator, args: Any, kwargs: Any) -> Replay:
    """Run the quantum function once, on tensors that torch watches."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    found: list[Structure] = []

    def numbers(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        structure, values = _run(qnode, *pytree.tree_unflatten(filled, spec))
        found.append(structure)
        return values

    tensors = [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    try:
        graph = make_fx(numbers)(*tensors)
    except RuntimeError as error:
        if LOOKED not in str(error):
            raise
        raise UserError(
            "from_qnode: the quantum function, or the decomposition of one of its operations, looks at the value of a "
            "tensor: call the QNode with device ketscale.fused"
        ) from error
    graph.graph.eliminate_dead_code()
    graph.recompile()
    for node in graph.graph.nodes:
        if node.op == "get_attr" and getattr(graph, str(node.target)).requires_grad:
            raise UserError(
                "from_qnode: the quantum function uses a tensor from outside that requires a gradient: make it an argument"
            )
    way = Replay(found[0], graph, tensors, simulator)
    _compare(qnode, way, args, kwargs)
    try:
        moved = pytree.tree_map(_moved, (args, kwargs))
        _run(qnode, *moved)
    except UserError:
        raise
    except Exception:
        # The function cannot run there, whatever the reason, such as a state that is not normalised any more.
        return way
    _compare(qnode, way, *moved)
    return way


def _moved(leaf: Any) -> Any:
    """A tensor with every entry a little elsewhere, the same at every call."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
        return leaf
    drawn = torch.rand(leaf.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return leaf.detach() + (0.01 + 0.1 * drawn).to(leaf)


def _compare(qnode: Any, way: Replay, args: Any, kwargs: Any) -> None:
    """Compare the record with the quantum function itself, in values and gradients.

    Raises:
        UserError: they differ, as they do if numbers take a way that torch does not see.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaves, spec = pytree.tree_flatten((args, kwargs))
        fresh = [
            leaf.detach().clone().requires_grad_(leaf.is_floating_point())
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in leaves
        ]
        tensors = [leaf for leaf in fresh if isinstance(leaf, torch.Tensor)]
        structure, values = _run(qnode, *pytree.tree_unflatten(fresh, spec))
        replayed = way.graph(*tensors)
        trainable = [tensor for tensor in tensors if tensor.requires_grad]
        if structure.same(way.structure) and all(
            torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True)
            for pair in ((values, replayed), (_slopes(values, trainable), _slopes(replayed, trainable)))
            for a, b in zip(*pair, strict=True)
        ):
            return
    raise UserError(
        "from_qnode: the circuit changes with its arguments, or with random numbers, in a way that torch cannot follow, "
        "such as NumPy or .tolist(): use torch's functions, or call the QNode with device ketscale.fused"
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
