"""`from_qnode`: a PennyLane QNode converted once, so that a call costs the circuit and not PennyLane's tape.

The quantum function runs once for each set of shapes, and of what else it reads. If the record of it only picks,
reorders and scales entries of the arguments, it becomes one gather, or no operation at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum
from typing import Any, Literal

import numpy as np
import torch

from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.derivatives import uncompiled
from ketscale.errors import UserError
from ketscale.optional import needed_for
from ketscale.private_torch import pytree, transforms_active
from ketscale.simulators.factory import named_simulator
from ketscale.simulators.spanned import Spanned

with needed_for("ketscale.from_qnode"):
    import pennylane as qml
    from pennylane.queuing import AnnotatedQueue
    from pennylane.tape import QuantumScript

    from ketscale.interop import recording
    from ketscale.interop import tape as tapes
    from ketscale.interop.outside import Outside
    from ketscale.interop.replay import Evaluator, Structure, precision, read_qnode

# Devices whose exact results `fused` gives.
DEVICES = ("default.qubit", "default.mixed", "lightning.", "reference.qubit", "ketscale.fused")

# What arguments may be, besides tensors and containers of them: they do not change.
CONSTANTS = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic)


def from_qnode(qnode: qml.QNode, trace: Literal["once", "always"] = "once") -> Converted:
    """A function of the same arguments that evaluates a QNode's circuit exactly with `fused`, differentiably in torch.

    Whatever device the QNode names, the simulation is exact and needs no shots; measurements in the middle are deferred. The circuit is differentiable,
    at most twice, with respect to tensors among the arguments, nested or not, and tensors that the quantum function reads
    from outside. A result has the arguments' precision and device, and the QNode's nesting. NumPy arrays are copied to tensors.

    trace: `once` assumes a pure quantum function, as jax.jit does: it runs at the first call with its shapes, and
        again where another argument, or what it reads from outside, has changed. That is what its closure, its globals
        and the object that it is a method of hold: numbers, texts, arrays up to 1 MiB, lists and dictionaries of these, functions
        by their identity. What called functions read besides is not seen. `always` runs it at every call, as PennyLane
        does, and lets it do what it likes with values.

    Raises:
        UserError: it is no QNode; it has shots, transforms, readout errors, or another device.
            At a call: a state is prepared that is not normalised, an angle is complex; with `once` also, the operations
            depend on values of tensors, or a captured variable's changes cannot be tracked.

    Example:
        >>> @qml.qnode(qml.device("default.qubit", wires=1))
        ... def qnode(angle):
        ...     qml.RY(angle, wires=0)
        ...     return qml.expval(qml.Z(0))
        >>> ketscale.from_qnode(qnode)(torch.zeros(3))
        tensor([1., 1., 1.])
    """
    if not isinstance(qnode, qml.QNode):
        raise UserError(f"from_qnode needs a QNode, not {type(qnode).__name__}: decorate it with qml.qnode")
    if trace not in ("once", "always"):
        raise UserError(f"from_qnode: trace is 'once' or 'always', not {trace!r}")
    if not str(qnode.device.name).startswith(DEVICES):
        raise UserError(f"from_qnode simulates what {', '.join(DEVICES)} do, and not {qnode.device.name}")
    if getattr(qnode.device, "readout_err", None) or getattr(qnode.device, "_readout", None):
        raise UserError(
            "from_qnode has no readout_prob: call the QNode with device ketscale.fused and readout_prob"
        )
    if qnode.shots or qnode.device.shots or len(qnode.compile_pipeline):
        raise UserError(
            "from_qnode has neither shots nor transforms: call the QNode with device ketscale.fused"
        )
    return Converted(qnode, trace)


class Converted:
    """What `from_qnode` returns, for `qml.qnn.TorchLayer` too. Copies and pickles are converted again.

    func: the quantum function. interface: for PennyLane.
    """

    interface = "torch"

    def __init__(self, qnode: Any, trace: str) -> None:
        self.qnode = qnode
        self.func = qnode.func
        self.trace = trace
        self._simulator: Simulator = Spanned(Fused())
        self._records = recording.Records(self._simulator)

    def __repr__(self) -> str:
        return f"<{self.qnode!r} on fused>"

    def __reduce__(self) -> tuple[type[Converted], tuple[Any, str]]:
        return Converted, (self.qnode, self.trace)

    @uncompiled
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The QNode's results; see `from_qnode`."""
        if torch.compiler.is_exporting():
            return self._evaluated(named_simulator("fused"), args, kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if any(isinstance(leaf, np.ndarray) for leaf in leaves):
            args, kwargs = pytree.tree_map_only(np.ndarray, torch.tensor, (args, kwargs))
            return self(*args, **kwargs)
        key = (spec, *map(_key, leaves))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        kind = tensors[0].device.type if tensors else "cpu"
        with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
            return self._answer(key, tensors, args, kwargs)

    def _evaluated(self, simulator: Simulator, args: Any, kwargs: Any) -> Any:
        """The results of the quantum function as it runs now."""
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        structure, values = _run(self.qnode, args, kwargs)
        evaluator = Evaluator(structure, simulator, precision(tensors or values), tapes.device_of(values))
        with evaluator.unqueued():
            return evaluator.nested(evaluator.evaluate(values))

    def _answer(self, key: object, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
        # Under torch.func values cannot be compared with those of a record.
        if self.trace == "always" or transforms_active():
            return self._evaluated(self._simulator, args, kwargs)

        def run(given: Sequence[torch.Tensor]) -> tuple[Structure, list[torch.Tensor]]:
            replaced = iter(given)
            filled = pytree.tree_map_only(torch.Tensor, lambda _: next(replaced), (args, kwargs))
            return _run(self.qnode, *filled)

        reads = Outside(self.func)
        way = self._records.ways.get((key, reads.key))
        if way is None:
            with tapes.LOCK:
                reads = Outside(self.func)
                way = self._records.record((key, reads.key), tensors, reads.tensors, run)
                way.references = reads.references
            if len(self._records.ways) == recording.MOST_WAYS:
                warnings.warn(
                    f"from_qnode has recorded the quantum function {recording.MOST_WAYS} times, and now forgets the oldest: "
                    "make a tensor argument of what changes at each call, or write from_qnode(qnode, trace='always')",
                    stacklevel=2,
                )
        self._records.check(way, tensors, reads.tensors, run)
        with way.unqueued():
            return way.nested(way([*tensors, *reads.tensors]))


def _key(leaf: Any) -> object:
    """What a conversion depends on: of tensors all but the values."""
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.dtype, leaf.device
    if not isinstance(leaf, CONSTANTS):
        raise UserError(
            f"from_qnode cannot compare arguments of type {type(leaf).__name__}: pass a torch tensor"
        )
    return type(leaf), leaf


@tapes.unqueued()
def _run(qnode: Any, args: Any, kwargs: Any) -> tuple[Structure, list[torch.Tensor]]:
    """The quantum function's tape: its structure, and its numbers."""
    with AnnotatedQueue() as queue:
        output = qnode.func(*args, **kwargs)
    tape = QuantumScript.from_queue(queue)
    measured, spec = pytree.tree_flatten(output)
    if [*map(id, measured)] != [*map(id, tape.measurements)]:
        raise UserError(
            "from_qnode: return the measurements, all of them and in the order in which they are made"
        )
    return read_qnode(tape, qnode.device, spec)
