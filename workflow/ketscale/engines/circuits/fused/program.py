"""A circuit as rotations about Pauli words, the form that both the CPU and the GPU kernels execute.

Every gate is a product of rotations exp(-i theta/2 P) and Clifford gates that permute basis states. The
latter go into a frame (`frame.py`), so a program consists of rotations, a final permutation, and the Pauli
words that are measured. Controlled rotations are two rotations: CRX(t) = exp(-i t/4 X) on the
target times exp(i t/4 ZX), and so on. PhaseShift(t) is RZ(t) with the global phase t/2, a rotation about
the identity, which only the state depends on.

Other gates that permute basis states, such as Toffoli, are a move of amplitudes, neighbours together. Rotations under
more than two controls are two rotations by half of the angle, between moves that turn the second one round where the
controls are 1 (Barenco et al., Phys. Rev. A 52, 3457 (1995), lemma 7.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import pi
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Circuit, Gate
from ketscale.engines.circuits.fused.frame import CONJUGATES, CliffordFrame, Indices, moves, word
from ketscale.errors import UserError
from ketscale.optional import needed_for


@dataclass(frozen=True)
class Angle:
    """factor times column `index` of the inputs or the weights; factor alone if the kind is 'constant'."""

    kind: Literal["input", "weight", "constant"]
    index: int
    factor: float

    @property
    def shared(self) -> bool:
        """Whether all samples have the same angle."""
        return self.kind != "input"

    def times(self, share: float) -> Angle:
        """A multiple of the angle."""
        return Angle(self.kind, self.index, self.factor * share)


@dataclass(frozen=True)
class _Masks:
    """A Hermitian word of X on mask `x` and Z on mask `z` (Y where both are set)."""

    x: int
    z: int

    @property
    def ys(self) -> int:
        """How many letters are Y."""
        return (self.x & self.z).bit_count()


@dataclass(frozen=True)
class Rotation(_Masks):
    """exp(-i angle/2 P) about a word P."""

    angle: Angle


@dataclass(frozen=True)
class Word(_Masks):
    """A measured Pauli word in the frame, times a sign."""

    sign: int


POWERS_OF_I = np.array([1, 1j, -1, -1j])


@dataclass(frozen=True)
class Move:
    """Basis state p becomes order[p] and is multiplied by i**powers[p]; both are int64 (2**n,), as bytes."""

    order: bytes
    powers: bytes

    @classmethod
    def of(cls, order: Indices, powers: Indices) -> Move:
        """The move of arrays."""
        return cls(order.tobytes(), (powers % 4).tobytes())

    @cached_property
    def arrays(self) -> tuple[Indices, Indices]:
        """order and powers."""
        return np.frombuffer(self.order, np.int64), np.frombuffer(self.powers, np.int64)

    @property
    def real(self) -> bool:
        """Whether real amplitudes stay real."""
        return not (self.arrays[1] % 2).any()

    @property
    def inverse(self) -> Move:
        """The move back."""
        order, powers = self.arrays
        back = np.argsort(order)
        return Move.of(back, -powers[back])

    @property
    def swaps(self) -> Indices:
        """The pairs (pairs, 2) of basis states whose exchanges, one after the other, are the permutation."""
        return _swaps(self.order)

    def factors(self) -> tuple[Indices, NDArray[np.complex128]]:
        """The basis states that are multiplied, and by what, before the exchanges."""
        powers = self.arrays[1]
        places = np.flatnonzero(powers)
        return places, POWERS_OF_I[powers[places]]

    def gathered(self) -> tuple[Indices, NDArray[np.complex128]]:
        """The basis state that each one comes from, and its factor."""
        order, powers = self.arrays
        source = np.argsort(order)
        return source, POWERS_OF_I[powers[source]]


# Circuits make the same move again and again.
@lru_cache(maxsize=64)
def _swaps(order: bytes) -> Indices:
    """See `Move.swaps`."""
    places = np.frombuffer(order, np.int64)
    displaced = np.flatnonzero(places != np.arange(len(places))).tolist()
    after = places.tolist() if displaced else []
    visited, pairs = set(), []
    for first in displaced:
        place = after[first]
        while first not in visited and place != first:
            pairs.append((first, place))
            visited.add(place)
            place = after[place]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Program:
    """Steps on `qubits` bits in order, and the result: the state (if `words` is None) or expectation values.

    keeps_phase: whether the result depends on the state's global phase.
    order, powers: basis state p of the computed state is i**powers[p] times basis state order[p] of the true
        one; None if they are the identity or no state is wanted.
    """

    qubits: int
    rotations: tuple[Rotation | Move, ...]
    words: tuple[Word, ...] | None
    keeps_phase: bool
    order: tuple[int, ...] | None = None
    powers: tuple[int, ...] | None = None

    @property
    def real(self) -> bool:
        """Whether the amplitudes stay real, starting from |0...0>: all words have an odd number of Y."""
        return all(r.ys % 2 == 1 if isinstance(r, Rotation) else r.real for r in self.rotations)


@lru_cache(maxsize=256)
def reduce(circuit: Circuit, paulis: tuple[str, ...] | None, mixed: bool = False) -> Program:
    """The program of a circuit that measures `paulis`, or, without any, gives its state.

    mixed: what is measured is a superposition of the state with others, so its global phase counts.
    """
    keeps_phase = paulis is None or mixed
    frame = CliffordFrame(circuit.qubits)
    rotations: list[Rotation | Move] = []

    def moved() -> None:
        move = frame.take_pending()
        if move is not None:
            rotations.append(Move.of(*move))

    for part in (part for gate in circuit.gates for part in elementary(gate)):
        if isinstance(part, Gate):
            if moves(part):
                frame.move(part)
            else:
                frame.absorb(part)
            continue
        spelt = ["I"] * circuit.qubits
        for letter, wire in zip(part.letters, part.wires, strict=True):
            spelt[wire] = letter
        image = frame.pull_back(word("".join(spelt)))
        if not (keeps_phase or image.x or image.z):
            continue  # a global phase, on which no expectation value depends
        moved()
        angle = part.angle
        rotations.append(
            Rotation(image.x, image.z, Angle(angle.kind, angle.index, image.sign * angle.factor))
        )
    moved()
    if paulis is None:
        order, powers = frame.permutation()
        identity = not powers.any() and np.array_equal(order, np.arange(len(order)))
        tables = (None, None) if identity else (tuple(order.tolist()), tuple(powers.tolist()))
        return Program(circuit.qubits, tuple(rotations), None, keeps_phase, *tables)
    images = [frame.pull_back(word(letters)) for letters in paulis]
    words = tuple(Word(image.x, image.z, image.sign) for image in images)
    return Program(circuit.qubits, tuple(rotations), words, keeps_phase)


# Gates as rotations in the order of execution: the letters on the gate's wires, the column of the angle (None: the
# factor is the angle), and its factor.
ROTATIONS: dict[str, tuple[tuple[str, int | None, float], ...]] = {
    **{f"R{letter}": ((letter, 0, 1.0),) for letter in "XYZ"},
    **{f"Ising{letter * 2}": ((letter * 2, 0, 1.0),) for letter in "XYZ"},
    "Rot": (("Z", 0, 1.0), ("Y", 1, 1.0), ("Z", 2, 1.0)),
    **{f"CR{letter}": (("I" + letter, 0, 0.5), ("Z" + letter, 0, -0.5)) for letter in "XYZ"},
    "PhaseShift": (("Z", 0, 1.0), ("I", 0, -1.0)),
    "ControlledPhaseShift": (("ZI", 0, 0.5), ("IZ", 0, 0.5), ("ZZ", 0, -0.5), ("II", 0, -0.5)),
    "T": (("Z", None, pi / 4), ("I", None, -pi / 4)),
    "Hadamard": (("Y", None, pi / 2),),  # RY(pi/2) Z, where Z has been absorbed before
}


@dataclass(frozen=True)
class Turn:
    """A rotation about the word of these letters on wires."""

    letters: str
    wires: tuple[int, ...]
    angle: Angle


def elementary(gate: Gate) -> Iterator[Gate | Turn]:
    """A gate as gates that permute basis states, and rotations, in the order of execution.

    Raises:
        UserError: it is a channel, which no state vector goes through.
    """
    if gate.is_channel:
        raise UserError(
            f"{gate.name} makes density matrices: ask simulator 'fused' for expectation values, probabilities or the density"
        )
    if len(gate.controls) == 1 and gate.base in CLIFFORD_PAULIS:
        control, target = gate.wires
        for name in CLIFFORD_PAULIS[gate.base]:
            yield Gate(name, (control, target) if name in ("CNOT", "CZ") else (target,))
        return
    if gate.name in CONJUGATES or moves(gate):
        yield gate
        return
    if gate.base == "Hadamard":
        yield from elementary(replace(gate, name=gate.name.replace("Hadamard", "PauliZ")))
    for turn in _turns(gate):
        yield from _controlled(gate.controls, turn)


def _turns(gate: Gate) -> Iterator[Turn]:
    """The rotations of a gate, without its controls."""
    wires = gate.wires[len(gate.controls) :]
    if gate.matrix is not None:
        for letters, angle in _unitary(np.asarray(gate.matrix)):
            yield Turn(letters, wires, angle)
    for letters, column, factor in ROTATIONS.get(gate.base, ()):
        own = None if column is None else gate.columns[column]
        if own is None or own.kind == "constant":
            yield Turn(letters, wires, _constant(factor if own is None else factor * own.value))
        else:
            yield Turn(letters, wires, Angle(own.kind, own.index, factor))


# Paulis under one control in the order of execution; S Z is the inverse of S.
CLIFFORD_PAULIS = {"PauliX": ("CNOT",), "PauliY": ("PauliZ", "S", "CNOT", "S"), "PauliZ": ("CZ",)}

# With so many controls a rotation is a product of rotations; their number doubles with each control.
MOST_AS_ROTATIONS = 2


def _controlled(controls: tuple[int, ...], turn: Turn) -> Iterator[Gate | Turn]:
    """A rotation where all controls are 1."""
    letters, wires, angle = turn.letters, turn.wires, turn.angle
    if len(controls) <= MOST_AS_ROTATIONS:
        for more in product("IZ", repeat=len(controls)):
            share = (-1) ** more.count("Z") / 2 ** len(controls)
            yield Turn("".join(more) + letters, controls + wires, angle.times(share))
        return
    if set(letters) == {"I"}:
        # A phase under controls is half of it under the others, and a rotation of the last one.
        *others, last = controls
        for letter, share in (("I", 0.5), ("Z", -0.5)):
            yield from _controlled(tuple(others), Turn(letter, (last,), angle.times(share)))
        return
    letter, wire = next(pair for pair in zip(letters, wires, strict=True) if pair[0] != "I")
    gate = Gate("C(PauliZ)" if letter == "X" else "C(PauliX)", (*controls, wire))
    for share in (0.5, -0.5):
        yield Turn(letters, wires, angle.times(share))
        yield gate


def _constant(value: float) -> Angle:
    return Angle("constant", 0, value)


def _unitary(matrix: NDArray[np.complex128]) -> Iterator[tuple[str, Angle]]:
    """A given unitary: Euler angles on one wire, the Weyl decomposition on two.

    Source: Tucci, arXiv:quant-ph/0507171 (the KAK decomposition), as Qiskit computes it.
    """
    if len(matrix) == 2:
        *angles, phase = _euler(matrix)
        yield from zip("ZYZ", map(_constant, angles), strict=True)
        yield "I", _constant(-2 * phase)
        return
    with needed_for("simulator fused, for a unitary of two qubits,"):
        from qiskit.synthesis import TwoQubitWeylDecomposition
    weyl = TwoQubitWeylDecomposition(matrix, fidelity=None)
    phase = float(weyl.global_phase)
    for locals_, letters in (((weyl.K2l, weyl.K2r), "ab"), ((weyl.K1l, weyl.K1r), "")):
        for wire, factor in enumerate(locals_):
            *angles, extra = _euler(np.asarray(factor))
            phase += extra
            for letter, angle in zip("ZYZ", angles, strict=True):
                yield ("I" + letter if wire else letter + "I"), _constant(angle)
        if letters:
            for pair, value in (("XX", weyl.a), ("YY", weyl.b), ("ZZ", weyl.c)):
                yield pair, _constant(-2 * float(value))
    yield "II", _constant(-2 * phase)


def _euler(matrix: NDArray[np.complex128]) -> tuple[float, float, float, float]:
    """(phi, theta, omega, phase) with matrix = exp(i phase) RZ(omega) RY(theta) RZ(phi)."""
    phase = np.angle(np.linalg.det(matrix)) / 2
    _, (c, d) = matrix * np.exp(-1j * phase)
    theta = 2 * np.arctan2(abs(c), abs(d))
    plus, minus = 2 * np.angle(d), 2 * np.angle(c)
    return (plus - minus) / 2, theta, (plus + minus) / 2, float(phase)
