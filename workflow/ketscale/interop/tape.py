"""PennyLane's tapes evaluated by `fused`: which operations it supports, and the results as torch tensors.

A tape's operations become a `Circuit` whose angles are columns: the parameters with a batch are inputs, the others
weights. So tapes that differ in numbers alone share one circuit. Expectation values of sums of Pauli words are
measured by `fused` itself, everything else by PennyLane's own functions on the final state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import starmap
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import pennylane as qml
import torch
from pennylane.devices.qubit.measure import measure
from pennylane.devices.qubit_mixed import measure as measure_mixed
from pennylane.exceptions import DeviceError
from pennylane.measurements import ExpectationMP, ProbabilityMP, SampleMeasurement, VarianceMP
from pennylane.operation import Operator, StatePrepBase
from pennylane.pytrees import flatten, unflatten
from pennylane.queuing import AnnotatedQueue, QueuingManager
from pennylane.tape import QuantumScript

from ketscale.engines.circuits.circuit import (
    GATES,
    KRAUS,
    PERMUTATION,
    READOUT,
    Circuit,
    Column,
    Gate,
    order_of,
)
from ketscale.errors import UserError

NAME = "ketscale.fused"

NOT_NOISY = (
    "with channels a prepared state is not differentiated, and nothing is evaluated by its matrix: pass arrays of NumPy, write "
    "gates, or leave out the channels"
)
COMPLEX = "an angle, or a factor of a Pauli word, is complex: take its real part"

# What changes no state.
IDENTITIES = frozenset({"Identity", "Barrier", "WireCut"})
PHASE = "GlobalPhase"

# What is evaluated by its matrix.
MATRIX = "matrix"

# Channels by their names, and those that are Kraus operators here, on two wires at most.
STRENGTHS = frozenset(
    ("BitFlip", "PhaseFlip", "DepolarizingChannel", "AmplitudeDamping", "GeneralizedAmplitudeDamping", "PhaseDamping", "ResetError")
)  # fmt: skip
OPERATORS = (qml.QubitChannel, qml.PauliError, qml.ThermalRelaxationError)

# What readout errors change.
OUTCOMES = (ExpectationMP, ProbabilityMP, VarianceMP, SampleMeasurement)

# PennyLane has one queue for all threads, and whoever records a quantum function holds this.
LOCK = getattr(AnnotatedQueue, "_lock", None) or RLock()


@contextmanager
def unqueued() -> Iterator[None]:
    """While PennyLane makes operators: a quantum function that another thread records would get them, or lose its own."""
    with LOCK, QueuingManager.stop_recording():
        yield


def native(operation: Operator) -> bool:
    """Whether `fused` supports an operation."""
    name = operation.name
    if isinstance(operation, qml.ops.Controlled) and operation.base.name in GATES:
        return True
    return (
        name in GATES
        or name in IDENTITIES
        or name == PHASE
        or name in STRENGTHS
        or permutes(operation)
        or is_constant_channel(operation)
    )


def is_constant_channel(operation: Operator) -> bool:
    """Whether it is a channel that is taken by its Kraus operators, which do not change."""
    constant = isinstance(operation, OPERATORS) and not any(map(qml.math.requires_grad, operation.data))
    return constant and len(operation.wires) <= 2 and operation.batch_size is None


def permutes(operation: Operator) -> bool:
    """Whether it is a matrix on three wires or more that is known to exchange basis states, and to do nothing else."""
    if not isinstance(operation, qml.QubitUnitary) or len(operation.wires) < 3:
        return False
    (matrix,) = operation.data
    return isinstance(matrix, np.ndarray) and order_of(matrix) is not None


def preparation(tape: QuantumScript) -> StatePrepBase | None:
    """The state that a tape starts from, if its first operation prepares one."""
    first = tape.operations[0] if tape.operations else None
    return first if isinstance(first, StatePrepBase) else None


class Numbers(NamedTuple):
    """The parameters of a tape's operations, in any library's arrays or numbers.

    inputs: those with a batch dimension. weights: the scalars. phases: of global phases, of either kind. matrices: of
    operations that are no gates, perhaps with a batch dimension.
    """

    inputs: list[Any]
    weights: list[Any]
    phases: list[Any]
    matrices: list[Any]


class Operation(NamedTuple):
    """A gate of a tape: its name, its wires, and for each angle 'input' or 'weight' with its place among the numbers of that kind.

    constants: a permutation's order, a given channel's Kraus operators, or the strengths of a readout error.
    """

    name: str
    wires: tuple[int, ...]
    columns: tuple[tuple[str, int], ...] = ()
    constants: tuple[Any, ...] = ()


def read(operations: Iterable[Operator], batched: bool) -> tuple[tuple[Operation, ...], Numbers]:
    """The gates of operations on wires 0..n-1, and their parameters.

    What is not native is MATRIX, with the place of its matrix. batched: whether gates have a batch.

    Raises:
        UserError: strengths alone have one, which PennyLane does not see.
    """
    gates: list[Operation] = []
    numbers = Numbers([], [], [], [])
    for operation in operations:
        if operation.name in IDENTITIES:
            continue
        if operation.name == PHASE:
            numbers.phases.append(operation.data[0])
            continue
        if permutes(operation):
            order = order_of(operation.data[0]) or ()
            gates.append(Operation(PERMUTATION, tuple(operation.wires), constants=order))
            continue
        if is_constant_channel(operation):
            matrices = (np.asarray(each, dtype=complex).tolist() for each in operation.kraus_matrices())
            kraus = tuple(tuple(map(tuple, each)) for each in matrices)
            gates.append(Operation(KRAUS, tuple(operation.wires), constants=kraus))
            continue
        if not native(operation):
            gates.append(Operation(MATRIX, tuple(operation.wires), ((MATRIX, len(numbers.matrices)),)))
            numbers.matrices.append(operation.matrix())
            continue
        columns = []
        for value in operation.data:
            axes = getattr(value, "ndim", 0)
            kind, kept = ("input", numbers.inputs) if axes else ("weight", numbers.weights)
            columns.append((kind, len(kept)))
            kept.append(value)
        if operation.name in GATES or operation.name in STRENGTHS:
            gates.append(Operation(operation.name, tuple(operation.wires), tuple(columns)))
            continue
        controls = zip(operation.control_wires, operation.control_values, strict=True)
        flips = [Operation("PauliX", (wire,)) for wire, value in controls if not value]
        wires = (*operation.control_wires, *operation.base.wires)
        gates += [*flips, Operation(f"C({operation.base.name})", wires, tuple(columns)), *flips]
    if numbers.inputs and not batched:
        raise UserError(
            "a channel's strength has a batch, and no gate has one: call the circuit for each of them"
        )
    return tuple(gates), numbers


def readout(share: float, tape: QuantumScript) -> tuple[Operation, ...]:
    """Readout errors on all wires 0..n-1 of a tape, of which `share` are read wrongly, as PennyLane's `readout_prob`.

    Raises:
        DeviceError: there are some, and it measures more than outcomes.
    """
    if not share:
        return ()
    observables = [m.obs for m in tape.measurements if m.obs is not None]
    words = all(sentence(each) is not None or len(each.wires) == 1 for each in observables)
    if not (words and all(isinstance(m, OUTCOMES) for m in tape.measurements)):
        raise DeviceError(
            "readout_prob is of outcomes: measure probabilities, samples, Pauli words and their sums, or a wire's matrix"
        )
    return tuple(Operation(READOUT, (wire,), constants=(share, share)) for wire in range(tape.num_wires))


@lru_cache(maxsize=1024)
def circuit(qubits: int, gates: tuple[Operation, ...]) -> Circuit:
    """The circuit of gates that were read."""

    def gate(name: str, wires: tuple[int, ...], columns: Any, constants: Any) -> Gate:
        if name == KRAUS:
            return Gate(name, wires, kraus=constants)
        if name == READOUT:
            return Gate(name, wires, tuple(Column("constant", value=strength) for strength in constants))
        return Gate(name, wires, tuple(starmap(Column, columns)), order=constants or None)

    return Circuit(qubits, tuple(starmap(gate, gates)))


class Expectations(NamedTuple):
    """Sums of Pauli words: result i is the sum over j of coefficients[i][j] times the value of words[places[i][j]]."""

    words: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    coefficients: list[list[Any]]


def expectations(measurements: Sequence[Any], qubits: int) -> Expectations | None:
    """The sums of Pauli words that measurements ask for; None if one asks for anything else."""
    words: dict[str, int] = {}
    places: list[tuple[int, ...]] = []
    coefficients: list[list[Any]] = []
    for measurement in measurements:
        supported = isinstance(measurement, ExpectationMP) and measurement.obs is not None
        terms = sentence(measurement.obs) if supported else None
        if terms is None or any(map(imaginary, terms.values())):
            return None
        places.append(tuple(words.setdefault(_spelt(word, qubits), len(words)) for word in terms))
        coefficients.append([qml.math.real(factor) for factor in terms.values()])
    return Expectations(tuple(words), tuple(places), coefficients)


def _spelt(word: Any, qubits: int) -> str:
    letters = ["I"] * qubits
    for wire, letter in word.items():
        letters[wire] = letter
    return "".join(letters)


def sentence(observable: Operator) -> Any:
    """The sum of Pauli words that an observable is, or None.

    PennyLane keeps the one that it made with the observable, whose tensors may have changed since.
    """
    if any(isinstance(value, torch.Tensor) for value in observable.data):
        observable = unflatten(*flatten(observable))
    return observable.pauli_rep


def imaginary(factor: Any) -> bool:
    """Whether a factor of a Pauli word has an imaginary part."""
    return qml.math.get_dtype_name(factor).startswith("complex") and bool(
        np.any(qml.math.unwrap([qml.math.imag(factor)])[0])
    )


def vector(numbers: Sequence[torch.Tensor], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Scalars as one tensor (n,), or batches of scalars as columns (batch, n)."""
    # Numbers that are written in the circuit are on the CPU.
    if len({(number.dtype, number.is_cpu) for number in numbers}) > 1:
        numbers = [number.to(device, dtype) for number in numbers]
    return torch.stack(tuple(numbers), dim=-1).to(device, dtype)


def device_of(tensors: Sequence[torch.Tensor]) -> torch.device:
    """The device of the first tensor that is not on the CPU, else the CPU."""
    return next((tensor.device for tensor in tensors if not tensor.is_cpu), torch.device("cpu"))


def unflattened(state: Any, qubits: int, batched: bool) -> Any:
    """States (batch, 2**qubits), of any library, as PennyLane has them, ((batch,) 2, 2, ..., 2)."""
    return state.reshape([-1, *[2] * qubits] if batched else [2] * qubits)


def check_measurements(measurements: Sequence[Any]) -> None:
    """Raise DeviceError if a gradient is asked for that PennyLane loses, which takes eigenvalues by NumPy."""
    for measurement in measurements if torch.is_grad_enabled() else ():
        values = (
            () if measurement.obs is None or isinstance(measurement, ExpectationMP) else measurement.obs.data
        )
        if any(qml.math.ndim(value) and qml.math.requires_grad(value) for value in values):
            raise DeviceError(
                f"{NAME} differentiates expectation values alone by the matrix of an observable, and not "
                f"{type(measurement).__name__}: write a variance as <H^2> - <H>^2"
            )


def of_mixture(measurement: Any, state: Any, is_state_batched: bool) -> Any:
    """What is measured on density matrices ((batch,) 2, ..., 2), without PennyLane's roots of probabilities, which may be 0."""
    if isinstance(measurement, VarianceMP) and measurement.obs is not None and measurement.obs.has_matrix:
        matrix, wires = measurement.obs.matrix(), measurement.obs.wires
        mean, square = (
            measure_mixed(qml.expval(qml.Hermitian(power, wires=wires)), state, is_state_batched)
            for power in (matrix, matrix @ matrix)
        )
        return square - mean**2
    if (
        not isinstance(measurement, ProbabilityMP)
        or measurement.obs is not None
        or measurement.mv is not None
    ):
        return measure_mixed(measurement, state, is_state_batched)
    batch = int(is_state_batched)
    qubits = (state.ndim - batch) // 2
    matrix = state.reshape(*state.shape[:batch], 2**qubits, 2**qubits)
    each = qml.math.einsum("...ii->...i", matrix).real.reshape(*state.shape[:batch], *[2] * qubits)
    wires = [batch + wire for wire in measurement.wires or range(qubits)]
    others = [axis for axis in range(batch, each.ndim) if axis not in wires]
    ordered = qml.math.transpose(each, (*range(batch), *wires, *others))
    return ordered.reshape(*state.shape[:batch], 2 ** len(wires), -1).sum(-1)


def measured(
    state: torch.Tensor, qubits: int, batched: bool, measurements: Sequence[Any], mixed: bool = False
) -> tuple[Any, ...]:
    """What PennyLane's own functions measure on final states (batch, 2**qubits), or density matrices (mixed).

    Raises:
        DeviceError: a gradient is wanted, and one of them does not compute in torch.
    """
    check_measurements(measurements)
    if mixed and state.requires_grad and any(isinstance(m.obs, qml.SparseHamiltonian) for m in measurements):
        raise DeviceError(
            f"{NAME} does not differentiate a SparseHamiltonian with channels: use its matrix or words"
        )
    whole = unflattened(state, qubits * (1 + mixed), batched)
    function = of_mixture if mixed else measure
    results = tuple(function(measurement, whole, is_state_batched=batched) for measurement in measurements)
    if state.requires_grad and not all(isinstance(result, torch.Tensor) for result in results):
        raise DeviceError(
            f"{NAME} cannot differentiate one of {measurements}: PennyLane does not measure it in torch"
        )
    return results
