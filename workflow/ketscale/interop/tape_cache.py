"""Tapes that are repeated: how the results depend on their parameters is recorded once and replayed.

PennyLane checks, copies and decomposes a tape at each call, which takes longer than a small circuit. Tapes with the same
operations, wires, measurements and shapes have one record (`recording`), as functions of `from_qnode` have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pennylane as qml
import torch
from pennylane.measurements import ExpectationMP, ProbabilityMP, StateMP
from pennylane.operation import Operator
from pennylane.pytrees import PyTreeStructure, flatten, unflatten
from pennylane.tape import QuantumScript

from ketscale.engines.circuits.circuit import GATES
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.derivatives import transformed, uncompiled
from ketscale.interop.decompositions import rests_on_a_matrix
from ketscale.interop.recording import Records, keep
from ketscale.interop.replay import Replay, Structure, read_tape, standard

# A record is worthwhile from about as many calls.
REPEATS = 8

# PennyLane's classes of the gates of `fused`: of these the wires say all that the numbers do not.
SIMPLE = frozenset(getattr(qml, name) for name in GATES)

# What PennyLane keeps in operations besides operations.
PLAIN = (str, bool, int, float, complex, type(None), np.generic, np.ndarray, torch.Tensor, qml.wires.Wires)


class _Unknown(Exception):
    """A tape has something for which a record could be wrong."""


class TapeCache:
    """The records of a device's tapes. Copies and pickles have none."""

    def __init__(self, simulator: Simulator, wires: Any) -> None:
        self._simulator = simulator
        self._records = Records(simulator, torch.float64)
        self._wires = wires
        # Observables have numbers: to hash that of hundreds of Pauli words takes longer than to measure them. They are known by
        # their contents, and by their identities, for which they are kept alive.
        self._numbers: dict[object, int] = {}
        self._observables: dict[object, tuple[Operator, int]] = {}
        self._next = count()
        # How often a tape was seen, or infinitely often if it cannot be recorded.
        self._counts: dict[object, float] = {}

    def __reduce__(self) -> tuple[type[TapeCache], tuple[Simulator, Any]]:
        return TapeCache, (self._simulator, self._wires)

    @uncompiled
    def find(self, tape: QuantumScript) -> tuple[Replay, list[torch.Tensor]] | None:
        """The record of a tape and the tensors that it needs; None if there is no record."""
        if tape.shots or transformed() or qml.decomposition.enabled_graph():
            return None
        tensors: list[torch.Tensor] = []
        try:
            key = (
                *[_operation(operation, tensors) for operation in tape.operations],
                *[self._measurement(measurement) for measurement in tape.measurements],
                *[(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors],
            )
            way = self._records.ways.get(key)
            if way is None:
                times = self._counts.get(key, 0) + 1
                keep(self._counts, key, times)
                if times < REPEATS or times == float("inf"):
                    return None
        except Exception:  # such as something that cannot be hashed
            return None

        def run(values: Sequence[torch.Tensor]) -> tuple[Structure, list[torch.Tensor]]:
            bound = standard(_bound(tape, values), self._wires)
            return read_tape(bound, len(tape.measurements))

        try:
            if way is None:
                if not all(map(_trusted, tape.operations)) or not _same(_bound(tape, tensors), tape):
                    raise _Unknown
                way = self._records.record(key, tensors, (), run)
                if way.structure.words is None and any(m.obs is not None for m in tape.measurements):
                    raise _Unknown
            self._records.check(way, tensors, (), run)
        except Exception:
            # Whatever the reason: the device then does without a record, and says itself what is wrong.
            self._records.ways.pop(key, None)
            keep(self._counts, key, float("inf"))
            return None
        return way, tensors

    def _measurement(self, measurement: Any) -> object:
        kind, observable = type(measurement), measurement.obs
        if kind in (ProbabilityMP, StateMP) and observable is None and measurement.mv is None:
            return kind, measurement.wires.labels
        if kind is not ExpectationMP or observable is None:
            raise _Unknown
        if observable.name in GATES:
            return type(observable), observable.wires.labels
        entry = self._observables.get(id(observable))
        if entry is None or entry[0] is not observable:
            contents = _observable(observable)
            number = self._numbers.get(contents)
            if number is None:
                number = next(self._next)
                keep(self._numbers, contents, number)
            entry = observable, number
            # Only sums of Pauli words have records, and PennyLane keeps theirs too: nothing is written to.
            keep(self._observables, id(observable), entry)
        return entry[1]


class CachedTape(QuantumScript):
    """A tape with its record, in place of the one that PennyLane would make of it."""

    def __init__(
        self,
        expanded: Callable[[], QuantumScript],
        tape: QuantumScript,
        way: Replay,
        tensors: list[torch.Tensor],
    ) -> None:
        super().__init__((), tape.measurements)
        self._expanded = expanded
        self.way = way
        self.tensors = tensors

    @property
    def operations(self) -> list[Operator]:
        """The operations that the device runs, for drawings."""
        return list(self._expanded().operations)


def _operation(operation: Operator, tensors: list[torch.Tensor]) -> object:
    """All of an operation but its numbers, which are added to the tensors."""
    if type(operation) in SIMPLE:
        numbers, structure = operation.data, (type(operation), operation.wires.labels)
    else:
        numbers, structure = flatten(operation)
    values: list[object] = []
    for value in numbers:
        tensor = _tensor(operation, value)
        if tensor is None:
            values.append(_value(value))
        else:
            tensors.append(tensor)
    return structure, *values


def _tensor(operation: Operator, value: Any) -> torch.Tensor | None:
    """A parameter as a tensor; None if its value is part of the key, as those of whole numbers and matrices are."""
    if isinstance(value, torch.Tensor):
        return value
    if type(value) in (float, int):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not rests_on_a_matrix(operation):
        return torch.from_numpy(np.array(value))
    return None


def _observable(observable: Operator) -> object:
    words = observable.pauli_rep
    if words is None:
        numbers, structure = flatten(observable)
        return structure, *map(_value, numbers)
    return tuple((word, _value(factor)) for word, factor in words.items())


def _value(value: Any) -> object:
    """A number or an array, by which a tape differs from others."""
    if isinstance(value, torch.Tensor) or not isinstance(
        value, np.ndarray | np.generic | complex | float | int
    ):
        raise _Unknown
    array = np.asarray(value)
    return type(value), array.dtype.str, array.shape, array.tobytes()


def _trusted(part: Any) -> bool:
    """Whether everything that determines how an operation is decomposed is PennyLane's, and in its key."""
    if isinstance(part, Operator):
        return _trusted(flatten(part)[1])
    if isinstance(part, PyTreeStructure):
        return _trusted((part.type_ or PyTreeStructure, part.metadata, *part.children))
    if isinstance(part, type):
        return part.__module__.partition(".")[0] in ("pennylane", "builtins")
    if isinstance(part, list | tuple):
        return all(map(_trusted, part))
    return isinstance(part, PLAIN)


def _same(bound: QuantumScript, tape: QuantumScript) -> bool:
    """Whether PennyLane puts numbers where they were."""
    return all(
        type(new) in SIMPLE or qml.equal(new, old, check_interface=False, check_trainability=False)
        for new, old in zip(bound.operations, tape.operations, strict=True)
    )


def _bound(tape: QuantumScript, tensors: Sequence[torch.Tensor]) -> QuantumScript:
    """The tape with other numbers."""
    values = iter(tensors)
    operations = []
    for operation in tape.operations:
        numbers, structure = flatten(operation)
        others = [value if _tensor(operation, value) is None else next(values) for value in numbers]
        operations.append(unflatten(others, structure) if others else operation)
    return QuantumScript(operations, tape.measurements)
