"""Circuits: an immutable list of gates over named angles.

The conventions are PennyLane's: the names and matrices of gates, and wire 0 as the most significant bit of a
basis state's index. A parametrised gate names a `Column` for each of its angles: an *input* column
holds one angle per sample, a *weight* column one angle shared by the whole batch; a *constant* is part of the circuit.

A circuit is written gate by gate: `Circuit(2).ry(0, "x0").ry(1, "w0").cnot(0, 1)`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ketscale.errors import UserError


class GateKind(NamedTuple):
    """How many wires a gate acts on and how many angles it has."""

    wires: int
    angles: int


GATES: dict[str, GateKind] = {
    **{name: GateKind(1, 0) for name in ("Hadamard", "PauliX", "PauliY", "PauliZ", "S", "T")},
    **{name: GateKind(1, 1) for name in ("RX", "RY", "RZ", "PhaseShift")},
    "Rot": GateKind(1, 3),
    **{name: GateKind(2, 0) for name in ("CNOT", "CZ", "SWAP")},
    **{name: GateKind(2, 1) for name in ("CRX", "CRY", "CRZ", "ControlledPhaseShift")},
    **{name: GateKind(2, 1) for name in ("IsingXX", "IsingYY", "IsingZZ")},
}

# Channels, by PennyLane's names, with strengths instead of angles; the depolarising one is on two wires too. PauliChannel has
# the probabilities of X, Y and Z, Readout those to read 1 from 0 and 0 from 1.
CHANNELS: dict[str, GateKind] = {
    **{name: GateKind(1, 1) for name in ("BitFlip", "PhaseFlip", "DepolarizingChannel")},
    **{name: GateKind(1, 1) for name in ("AmplitudeDamping", "PhaseDamping")},
    **{name: GateKind(1, 2) for name in ("GeneralizedAmplitudeDamping", "ResetError", "Readout")},
    "PauliChannel": GateKind(1, 3),
    "ThermalRelaxationError": GateKind(1, 4),
}
KRAUS, READOUT = "QubitChannel", "Readout"
# Their strengths are probabilities of one draw.
PROBABILITIES = ("PauliChannel", "ResetError")

# Unlike the gates above these carry what they do: a given unitary on one or two wires its matrix, a permutation of the
# basis states of its wires their order.
UNITARY = "QubitUnitary"
PERMUTATION = "Permutation"

Matrix = tuple[tuple[complex, ...], ...]


@dataclass(frozen=True)
class Column:
    """One angle of a gate: column `index` of the per-sample inputs or of the shared weights, or a constant `value`."""

    kind: Literal["input", "weight", "constant"]
    index: int = 0
    value: float = 0.0


# How a gate's angle is written: 'x3' is input 3, 'w0' is weight 0, a number is a constant in radians.
AngleLike = Column | str | float


def column(angle: AngleLike) -> Column:
    """The column of a written angle.

    Raises:
        UserError: it is no column, no text such as 'x0' or 'w0', and no finite number.
    """
    if isinstance(angle, Column):
        return angle
    if isinstance(angle, str):
        match = re.fullmatch(r"([xw])(0|[1-9][0-9]*)", angle)
        if match:
            return Column("input" if match[1] == "x" else "weight", int(match[2]))
    number: Any = angle
    if isinstance(number, torch.Tensor) and number.ndim == 0 and not number.requires_grad:
        number = number.item()
    if (
        isinstance(number, (int, float, np.integer, np.floating))
        and not isinstance(number, bool)
        and math.isfinite(number)
    ):
        return Column("constant", value=float(number))
    raise UserError(
        f"angle {angle!r}: write 'x0' for input 0, 'w0' for weight 0, or a finite number of radians"
    )


@dataclass(frozen=True)
class Gate:
    """A gate on `wires`; `columns` are its angles in PennyLane's order.

    name: a name in `GATES`, or 'C(RX)' for RX under all but the last of the wires, where these are 1; so for every gate of `GATES`.
    matrix: a `QubitUnitary`'s alone, 2x2 or 4x4, the first wire the more significant; see `given`.
    order: a `Permutation`'s alone: basis state i of the wires, the first one the most significant, becomes order[i].
    kraus: the operators of a `QubitChannel` alone, on one wire or two.
    A channel of `CHANNELS` has strengths in its columns instead of angles.

    Raises:
        UserError: a wire is no whole number, or a constant strength is none of a channel.
    """

    name: str
    wires: tuple[int, ...]
    columns: tuple[Column, ...] = ()
    matrix: Matrix | None = None
    order: tuple[int, ...] | None = None
    kraus: tuple[Matrix, ...] | None = None

    def __post_init__(self) -> None:
        try:
            # A compiled program has the circuit as a text, which takes Python's own numbers alone.
            object.__setattr__(self, "wires", tuple(map(operator.index, self.wires)))
        except TypeError:
            raise UserError(f"{self.name} on wires {self.wires}: wires are whole numbers") from None
        if self.name in CHANNELS and (fault := _fault(self.name, self.columns)):
            raise UserError(f"{self.name} on wires {self.wires}: {fault}")

    @property
    def is_channel(self) -> bool:
        """Whether it is no unitary."""
        return self.name in CHANNELS or self.kraus is not None

    @property
    def base(self) -> str:
        """The name without controls."""
        return self.name[2:-1] if self.name.startswith("C(") else self.name

    @property
    def controls(self) -> tuple[int, ...]:
        """The wires that a name such as 'C(RX)' makes controls."""
        return () if self.base == self.name else self.wires[: -GATES[self.base].wires]

    @property
    def kind(self) -> GateKind | None:
        """How many wires and angles it has; None if there is no such gate."""
        if self.name in GATES:
            return GATES[self.name]
        if self.name in CHANNELS:
            both = self.name == "DepolarizingChannel" and len(self.wires) == 2
            return GateKind(2, 1) if both else CHANNELS[self.name]
        if self.name == KRAUS and self.kraus is not None:
            return GateKind(len(self.kraus[0]).bit_length() - 1, 0)
        if self.name == UNITARY and self.matrix is not None:
            return GateKind(len(self.matrix).bit_length() - 1, 0)
        if self.name == PERMUTATION and self.order is not None:
            return GateKind(len(self.order).bit_length() - 1, 0)
        base = GATES.get(self.base)
        return None if base is None else GateKind(max(len(self.wires), base.wires + 1), base.angles)


def _fault(name: str, columns: Sequence[Column]) -> str | None:
    """What is wrong with constant strengths, if anything is."""
    constant = [each.value for each in columns if each.kind == "constant"]
    if name == "ThermalRelaxationError":
        if len(constant) < len(columns):
            return "its strengths are numbers: the excited state's share, T1, T2 and the time"
        if len(constant) == 4:
            share, t1, t2, time = constant
            if not (0 <= share <= 1 and t1 > 0 and 0 < t2 <= 2 * t1 and time >= 0):
                return f"needs a share from 0 to 1, T1 > 0, 0 < T2 <= 2 T1 and time >= 0, not {share}, {t1}, {t2}, {time}"
        return None
    if not all(0 <= value <= 1 for value in constant):
        return f"strengths are from 0 to 1, not {', '.join(f'{value:g}' for value in constant)}"
    if name in PROBABILITIES and sum(constant) > 1 + 1e-12:
        return f"its probabilities sum to {sum(constant):g}, more than 1"
    return None


def order_of(matrix: NDArray[Any]) -> tuple[int, ...] | None:
    """The order of a permutation's matrix; None for any other matrix."""
    if matrix.ndim != 2:
        return None
    order = np.abs(matrix).argmax(0)
    permutes = np.array_equal(matrix, np.eye(len(matrix))[np.argsort(order)])
    return tuple(order.tolist()) if permutes else None


def given(matrix: ArrayLike, *wires: int) -> Gate:
    """The gate of a given unitary on one or two wires, or of a permutation's matrix on more; the first wire is the
    most significant.

    Raises:
        UserError: the matrix is not 2**wires wide, not unitary to 1e-6, or on more than two wires and no permutation.
    """
    values = np.asarray(matrix, dtype=complex)
    size = 2 ** len(wires)
    order = order_of(values) if len(wires) > 2 and values.shape == (size, size) else None
    if order is not None:
        return Gate(PERMUTATION, wires, order=order)
    if len(wires) not in (1, 2) or values.shape != (size, size):
        raise UserError(
            f"a given unitary on wires {wires} must be {size}x{size} on 1 or 2 wires, or a permutation, "
            f"not {values.shape}"
        )
    if not np.allclose(values @ values.conj().T, np.eye(size), rtol=0, atol=1e-6):
        raise UserError(f"the matrix given for wires {wires} is not unitary")
    return Gate(UNITARY, wires, matrix=tuple(tuple(map(complex, row)) for row in values))


def given_channel(operators: Sequence[ArrayLike], *wires: int) -> Gate:
    """The channel of given Kraus operators on one wire or two, the first wire the more significant.

    Raises:
        UserError: an operator is not 2**wires wide, or they do not preserve the trace to 1e-6.
    """
    size = 2 ** len(wires)
    values = [np.asarray(operator, dtype=complex) for operator in operators]
    if len(wires) not in (1, 2) or not values or any(value.shape != (size, size) for value in values):
        raise UserError(f"a channel on wires {wires} has Kraus operators {size}x{size} on 1 or 2 wires")
    total = sum(value.conj().T @ value for value in values)
    if not np.allclose(total, np.eye(size), rtol=0, atol=1e-6):
        raise UserError(
            f"the Kraus operators for wires {wires} do not preserve the trace: sum of K^dagger K is not 1"
        )
    return Gate(
        KRAUS, wires, kraus=tuple(tuple(tuple(map(complex, row)) for row in value) for value in values)
    )


def given_matrix(gate: Gate) -> NDArray[np.complex128] | None:
    """The matrix of a gate that carries what it does, the first wire the more significant; None for others."""
    if gate.order is not None:
        return np.eye(len(gate.order), dtype=complex)[np.argsort(gate.order)]
    return None if gate.matrix is None else np.asarray(gate.matrix)


@dataclass(frozen=True)
class Circuit:
    """An immutable list of gates on `qubits` wires, which act on |0...0> by default.

    Raises:
        UserError: there is no qubit, or no whole number of them; or a gate has an unknown name, a wrong number of wires or
            angles, a wire that is no whole number, repeated or out of range, or an order that is no permutation.

    Example:
        >>> circuit = ketscale.Circuit(2).ry(0, "x0").ry(1, "x1").cnot(0, 1).rz(1, "w0").rx(0, 0.5)
        >>> circuit.inputs, circuit.weights
        (2, 1)
        >>> turned = circuit.h(0).x(1).y(0).z(1).s(0).t(1).phase(0, "w1").rot(1, "w2", "w3", 0.1).cz(0, 1).swap(0, 1)
        >>> coupled = turned.crx(0, 1, "w4").cry(1, 0, 0.2).crz(0, 1, 0.3).cphase(0, 1, "w5").xx(0, 1, 0.1).yy(0, 1, 0.2)
        >>> coupled.zz(0, 1, "x2").gate("CRX", (0, 1), "w6").then(*circuit.gates).inputs
        3
        >>> algorithm = ketscale.Circuit(3).toffoli(0, 1, 2).controlled("RX", (0, 1), (2,), "w0").permuted((1, 2, 3, 0), 0, 1)
        >>> noisy = turned.channel("AmplitudeDamping", 0, "w7").kraus([[[0.6, 0], [0, 0.6]], [[0, 0.8], [0.8, 0]]], 1)
        >>> len(algorithm.qft(0, 1, 2).unitary([[0, 1], [1, 0]], 2).gates)
        11
    """

    qubits: int
    gates: tuple[Gate, ...] = ()

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "qubits", operator.index(self.qubits))
        except TypeError:
            raise UserError(f"qubits must be a whole number, not {self.qubits!r}") from None
        if self.qubits < 1:
            raise UserError(f"a circuit needs at least 1 qubit, not {self.qubits}")
        for gate in self.gates:
            kind = gate.kind
            if kind is None:
                raise UserError(
                    f"unknown gate {gate.name!r}: choose one of {', '.join(GATES)}, {', '.join(CHANNELS)}, one of the former under controls, such as "
                    "'C(RX)', or make one with circuit.given"
                )
            if len(gate.wires) != kind.wires or len(gate.columns) != kind.angles:
                raise UserError(
                    f"{gate.name} has {kind.wires} wire(s) and {kind.angles} angle(s), "
                    f"not {len(gate.wires)} and {len(gate.columns)}"
                )
            if len(set(gate.wires)) != len(gate.wires) or not all(0 <= w < self.qubits for w in gate.wires):
                raise UserError(
                    f"{gate.name} on wires {gate.wires}: wires must differ and be in 0..{self.qubits - 1}"
                )
            if gate.order is not None and sorted(gate.order) != list(range(2 ** len(gate.wires))):
                raise UserError(
                    f"{gate.name} on wires {gate.wires}: its order must have each of 0..{2 ** len(gate.wires) - 1} once"
                )

    # A copy is the circuit itself. A pickle leaves out the cached hash, since other processes hash texts differently.
    def __deepcopy__(self, memo: dict[int, object]) -> Circuit:
        return self

    def __reduce__(self) -> tuple[type[Circuit], tuple[int, tuple[Gate, ...]]]:
        return Circuit, (self.qubits, self.gates)

    # Cached, since every call of a simulator asks for them.
    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.qubits, self.gates))

    @cached_property
    def inputs(self) -> int:
        """Number of per-sample angle columns."""
        return self._columns("input")

    @cached_property
    def weights(self) -> int:
        """Number of shared angle columns."""
        return self._columns("weight")

    def _columns(self, kind: str) -> int:
        return 1 + max((c.index for g in self.gates for c in g.columns if c.kind == kind), default=-1)

    @cached_property
    def noisy(self) -> bool:
        """Whether it has channels, so that its state is a density matrix."""
        return any(gate.is_channel for gate in self.gates)

    @cached_property
    def strengths(self) -> tuple[int, ...]:
        """The weights that are strengths of channels."""
        columns = (column for gate in self.gates if gate.is_channel for column in gate.columns)
        return tuple(sorted({column.index for column in columns if column.kind == "weight"}))

    def gate(self, name: str, wires: tuple[int, ...], *angles: AngleLike) -> Circuit:
        """This circuit followed by a gate of `GATES`; an angle is 'x0', 'w0' or a number of radians."""
        return self.then(Gate(name, wires, tuple(map(column, angles))))

    def then(self, *gates: Gate) -> Circuit:
        """This circuit followed by gates; none acts on a wire after its `Readout`."""
        read = {gate.wires[0] for gate in self.gates if gate.name == READOUT} if self.noisy else set()
        for gate in gates if read else ():
            if read & {*gate.wires}:
                raise UserError(
                    f"{gate.name} on wires {gate.wires}: nothing acts on a wire after its Readout"
                )
        return Circuit(self.qubits, (*self.gates, *gates))

    def h(self, wire: int) -> Circuit:
        """Followed by Hadamard."""
        return self.gate("Hadamard", (wire,))

    def x(self, wire: int) -> Circuit:
        """Followed by PauliX."""
        return self.gate("PauliX", (wire,))

    def y(self, wire: int) -> Circuit:
        """Followed by PauliY."""
        return self.gate("PauliY", (wire,))

    def z(self, wire: int) -> Circuit:
        """Followed by PauliZ."""
        return self.gate("PauliZ", (wire,))

    def s(self, wire: int) -> Circuit:
        """Followed by S = diag(1, i)."""
        return self.gate("S", (wire,))

    def t(self, wire: int) -> Circuit:
        """Followed by T = diag(1, e^(i pi/4))."""
        return self.gate("T", (wire,))

    def rx(self, wire: int, angle: AngleLike) -> Circuit:
        """Followed by RX(angle) = exp(-i angle/2 X)."""
        return self.gate("RX", (wire,), angle)

    def ry(self, wire: int, angle: AngleLike) -> Circuit:
        """Followed by RY(angle) = exp(-i angle/2 Y)."""
        return self.gate("RY", (wire,), angle)

    def rz(self, wire: int, angle: AngleLike) -> Circuit:
        """Followed by RZ(angle) = exp(-i angle/2 Z)."""
        return self.gate("RZ", (wire,), angle)

    def phase(self, wire: int, angle: AngleLike) -> Circuit:
        """Followed by PhaseShift(angle) = diag(1, e^(i angle))."""
        return self.gate("PhaseShift", (wire,), angle)

    def rot(self, wire: int, phi: AngleLike, theta: AngleLike, omega: AngleLike) -> Circuit:
        """Followed by Rot: RZ(phi), then RY(theta), then RZ(omega)."""
        return self.gate("Rot", (wire,), phi, theta, omega)

    def cnot(self, control: int, target: int) -> Circuit:
        """Followed by CNOT."""
        return self.gate("CNOT", (control, target))

    def cz(self, first: int, second: int) -> Circuit:
        """Followed by CZ."""
        return self.gate("CZ", (first, second))

    def swap(self, first: int, second: int) -> Circuit:
        """Followed by SWAP."""
        return self.gate("SWAP", (first, second))

    def crx(self, control: int, target: int, angle: AngleLike) -> Circuit:
        """Followed by a controlled RX."""
        return self.gate("CRX", (control, target), angle)

    def cry(self, control: int, target: int, angle: AngleLike) -> Circuit:
        """Followed by a controlled RY."""
        return self.gate("CRY", (control, target), angle)

    def crz(self, control: int, target: int, angle: AngleLike) -> Circuit:
        """Followed by a controlled RZ."""
        return self.gate("CRZ", (control, target), angle)

    def cphase(self, first: int, second: int, angle: AngleLike) -> Circuit:
        """Followed by ControlledPhaseShift(angle) = diag(1, 1, 1, e^(i angle))."""
        return self.gate("ControlledPhaseShift", (first, second), angle)

    def xx(self, first: int, second: int, angle: AngleLike) -> Circuit:
        """Followed by IsingXX(angle) = exp(-i angle/2 XX)."""
        return self.gate("IsingXX", (first, second), angle)

    def yy(self, first: int, second: int, angle: AngleLike) -> Circuit:
        """Followed by IsingYY(angle) = exp(-i angle/2 YY)."""
        return self.gate("IsingYY", (first, second), angle)

    def zz(self, first: int, second: int, angle: AngleLike) -> Circuit:
        """Followed by IsingZZ(angle) = exp(-i angle/2 ZZ)."""
        return self.gate("IsingZZ", (first, second), angle)

    def controlled(
        self, name: str, controls: Sequence[int], wires: Sequence[int], *angles: AngleLike
    ) -> Circuit:
        """Followed by a gate of `GATES` on `wires` where all `controls` are 1; angles as for `gate`."""
        return self.gate(f"C({name})", (*controls, *wires), *angles)

    def toffoli(self, first: int, second: int, target: int) -> Circuit:
        """Followed by Toffoli, PauliX under two controls."""
        return self.controlled("PauliX", (first, second), (target,))

    def channel(self, name: str, wires: int | Sequence[int], *strengths: AngleLike) -> Circuit:
        """Followed by a channel of `CHANNELS`; a strength is a number, 'x0' or 'w0'."""
        if name not in CHANNELS:
            raise UserError(f"unknown channel {name!r}: choose one of {', '.join(CHANNELS)}")
        on = tuple(wires) if isinstance(wires, Sequence) else (operator.index(wires),)
        return self.gate(name, on, *strengths)

    def kraus(self, operators: Sequence[ArrayLike], *wires: int) -> Circuit:
        """Followed by the channel of given Kraus operators on one wire or two; see `given_channel`."""
        return self.then(given_channel(operators, *wires))

    def permuted(self, order: Iterable[int], *wires: int) -> Circuit:
        """Followed by a permutation: basis state i of the wires, the first one the most significant, becomes order[i]."""
        return self.then(Gate(PERMUTATION, wires, order=tuple(map(int, order))))

    def qft(self, *wires: int) -> Circuit:
        """Followed by the quantum Fourier transform: of m wires, the first one the most significant, |j> becomes the sum of
        exp(2 pi i j k / 2^m) |k> / 2^(m/2) over k.
        """
        circuit, count = self, len(wires)
        for i, wire in enumerate(wires):
            circuit = circuit.h(wire)
            for j in range(i + 1, count):
                circuit = circuit.cphase(wires[j], wire, math.pi / 2 ** (j - i))
        for i in range(count // 2):
            circuit = circuit.swap(wires[i], wires[count - 1 - i])
        return circuit

    def unitary(self, matrix: ArrayLike, *wires: int) -> Circuit:
        """Followed by a given unitary on one or two wires, or a permutation's matrix on more; see `given`."""
        return self.then(given(matrix, *wires))


class Angles(NamedTuple):
    """The angles of a batch of circuits, in radians; both parts may require gradients.

    inputs: real (batch, columns), one row per sample; its first dimension is the batch size even
        when the circuit has no input columns (shape (batch, 0)).
    weights: real (columns,), shared by the batch; shape (0,) when there are none.
    """

    inputs: torch.Tensor
    weights: torch.Tensor


def check(circuit: Circuit, angles: Angles) -> None:
    """Raise UserError unless `angles` has the shapes that `circuit` needs, one precision and one device."""
    inputs, weights = angles
    if inputs.ndim != 2 or inputs.shape[1] < circuit.inputs:
        raise UserError(f"inputs must be (batch, {circuit.inputs}), not {tuple(inputs.shape)}")
    if weights.ndim != 1 or weights.shape[0] < circuit.weights:
        raise UserError(f"weights must be ({circuit.weights},), not {tuple(weights.shape)}")
    if inputs.dtype != weights.dtype:
        raise UserError(f"inputs are {inputs.dtype} and weights {weights.dtype}: use one precision")
    if inputs.dtype not in (torch.float32, torch.float64):
        raise UserError(f"angles are {inputs.dtype}: circuits take torch.float32 or torch.float64")
    if inputs.device != weights.device:
        raise UserError(f"inputs are on {inputs.device} and weights on {weights.device}: use one device")


def pauli_words(qubits: int, letters: Iterable[str] = "Z") -> tuple[str, ...]:
    """Full-length Pauli words of one letter, e.g. ('ZI', 'IZ'): each of `letters` on wires 0..n-1 in turn."""
    return tuple("I" * w + letter + "I" * (qubits - 1 - w) for letter in letters for w in range(qubits))
