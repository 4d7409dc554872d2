"""A circuit as rotations about Pauli words, the form that both the CPU and the GPU kernels execute.

Every gate is a product of rotations exp(-i theta/2 P) and Clifford gates that permute basis states. The
latter go into a frame (`frame.py`), so a program consists of rotations, a final permutation, and the Pauli
words that are measured. Controlled rotations are two rotations: CRX(t) = exp(-i t/4 X) on the
target times exp(i t/4 ZX), and so on. PhaseShift(t) is RZ(t) with the global phase t/2, a rotation about
the identity, which only the state depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import pi
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Circuit, Gate
from ketscale.engines.circuits.fused.frame import CONJUGATES, CliffordFrame, Pauli, word
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


@dataclass(frozen=True)
class Rotation:
    """exp(-i angle/2 P), where P is the Hermitian word of X on mask `x` and Z on mask `z` (Y where both are set)."""

    x: int
    z: int
    angle: Angle

    @property
    def ys(self) -> int:
        """How many letters of P are Y."""
        return (self.x & self.z).bit_count()

    def commutes(self, other: Rotation | Flip) -> bool:
        """Whether the order of the two does not matter."""
        if isinstance(other, Flip):
            return other.commutes(self)
        return not Pauli(self.x, self.z).anticommutes(Pauli(other.x, other.z))


@dataclass(frozen=True)
class Flip:
    """Exchange basis states p and p ^ x if an odd number of the bits of `control` is set in p, or always if it is 0.

    Only the literal form of a circuit has flips: there CNOT and X move amplitudes.
    """

    x: int
    control: int

    def commutes(self, other: Rotation | Flip) -> bool:
        """Conservative: never, unless the two touch different bits."""
        theirs = other.x | (other.control if isinstance(other, Flip) else other.z)
        return not (self.x | self.control) & theirs


@dataclass(frozen=True)
class Word:
    """A measured Pauli word in the frame: sign times X on mask `x` and Z on mask `z`."""

    x: int
    z: int
    sign: int

    @property
    def ys(self) -> int:
        """How many letters are Y."""
        return (self.x & self.z).bit_count()


@dataclass(frozen=True)
class Program:
    """Rotations on `qubits` bits in order, and the result: the state (if `words` is None) or expectation values.

    order, powers: basis state p of the computed state is i**powers[p] times basis state order[p] of the true
        one; None if they are the identity or no state is wanted.
    """

    qubits: int
    rotations: tuple[Rotation | Flip, ...]
    words: tuple[Word, ...] | None
    order: tuple[int, ...] | None = None
    powers: tuple[int, ...] | None = None

    @property
    def real(self) -> bool:
        """Whether the amplitudes stay real, starting from |0...0>: all words have an odd number of Y."""
        return all(isinstance(r, Flip) or r.ys % 2 == 1 for r in self.rotations)


def reduce(circuit: Circuit, paulis: Sequence[str] | None, literal: bool = False) -> Program:
    """The program of a circuit that measures `paulis`, or, without any, gives its state.

    literal: keep every gate, with permutations as moves of amplitudes, to show what the frame saves.
    """
    frame = CliffordFrame(circuit.qubits)
    rotations: list[Rotation | Flip] = []
    for gate in (part for whole in circuit.gates for part in _parts(whole)):
        if gate.name in CONJUGATES and not literal:
            frame.absorb(gate.name, gate.wires)
            continue
        rotations += _flips(gate, circuit.qubits)
        for letters, angle in _rotations(gate):
            spelt = ["I"] * circuit.qubits
            for letter, wire in zip(letters, gate.wires, strict=True):
                spelt[wire] = letter
            image = frame.pull_back(word("".join(spelt)))
            if paulis is not None and not (image.x or image.z):
                continue  # a global phase, on which no expectation value depends
            rotations.append(
                Rotation(image.x, image.z, Angle(angle.kind, angle.index, image.sign * angle.factor))
            )
    if paulis is None:
        order, powers = frame.permutation()
        identity = not powers.any() and np.array_equal(order, np.arange(len(order)))
        tables = (None, None) if identity else (tuple(order.tolist()), tuple(powers.tolist()))
        return Program(circuit.qubits, tuple(rotations), None, *tables)
    images = [frame.pull_back(word(letters)) for letters in paulis]
    words = tuple(Word(image.x, image.z, image.sign) for image in images)
    return Program(circuit.qubits, tuple(rotations), words)


def _flips(gate: Gate, qubits: int) -> list[Flip]:
    """The moves of amplitudes in a gate that is kept literally."""
    bits = [1 << (qubits - 1 - w) for w in gate.wires]
    there, back = Flip(bits[-1], bits[0]), Flip(bits[0], bits[-1])
    moves = {"CNOT": [there], "SWAP": [there, back, there]}
    if gate.name in ("PauliX", "PauliY"):
        return [Flip(bits[0], 0)]
    return moves.get(gate.name, [])


# Gates as rotations in the order of execution: the letters on the gate's wires, the column of the angle (None: the
# factor is the angle), and its factor. S, CZ and the Paulis only if a circuit is kept literally, after their flips.
ROTATIONS: dict[str, tuple[tuple[str, int | None, float], ...]] = {
    **{f"R{letter}": ((letter, 0, 1.0),) for letter in "XYZ"},
    **{f"Ising{letter * 2}": ((letter * 2, 0, 1.0),) for letter in "XYZ"},
    "Rot": (("Z", 0, 1.0), ("Y", 1, 1.0), ("Z", 2, 1.0)),
    **{f"CR{letter}": (("I" + letter, 0, 0.5), ("Z" + letter, 0, -0.5)) for letter in "XYZ"},
    "PhaseShift": (("Z", 0, 1.0), ("I", 0, -1.0)),
    "ControlledPhaseShift": (("ZI", 0, 0.5), ("IZ", 0, 0.5), ("ZZ", 0, -0.5), ("II", 0, -0.5)),
    "T": (("Z", None, pi / 4), ("I", None, -pi / 4)),
    "S": (("Z", None, pi / 2), ("I", None, -pi / 2)),
    "PauliY": (("Z", None, pi),),  # after X: Y = i X Z = -i Z X
    "PauliZ": (("Z", None, pi), ("I", None, -pi)),
    "CZ": (("ZI", None, pi / 2), ("IZ", None, pi / 2), ("ZZ", None, -pi / 2), ("II", None, -pi / 2)),
    "Hadamard": (("Y", None, pi / 2),),  # RY(pi/2) Z, where Z has been absorbed before
}


def _rotations(gate: Gate) -> Iterator[tuple[str, Angle]]:
    """The gate as rotations in the order of execution: letters on the gate's wires, and an angle."""
    if gate.matrix is not None:
        yield from _unitary(np.asarray(gate.matrix))
    for letters, column, factor in ROTATIONS.get(gate.name, ()):
        given = None if column is None else gate.columns[column]
        if given is None or given.kind == "constant":
            yield letters, _constant(factor if given is None else factor * given.value)
        else:
            yield letters, Angle(given.kind, given.index, factor)


def _parts(gate: Gate) -> tuple[Gate, ...]:
    return (Gate("PauliZ", gate.wires), gate) if gate.name == "Hadamard" else (gate,)


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
