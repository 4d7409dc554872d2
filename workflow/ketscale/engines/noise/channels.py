"""Gates and channels on one qubit as real matrices (4, 4) in the Pauli basis.

A density matrix is the vector of its expectation values r_P = Tr(P rho), with P of I, X, Y, Z on each qubit. A channel E is
the matrix R_PQ = Tr(P E(Q)) / 2 on it (the Pauli transfer matrix: Greenbaum, arXiv:1509.02921). Its first row is
(1, 0, 0, 0), since channels preserve the trace.

The names, matrices and strengths of channels are PennyLane's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ketscale.engines.circuits.circuit import Column
from ketscale.engines.circuits.fused.program import Angle

Transfer = NDArray[np.float64]

PAULIS = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])


class Feature(NamedTuple):
    """A number that matrices are linear in.

    kind: 'cos' and 'sin' of an angle; 'strength'; 'root': of 1 - strength; 'product' of two strengths. of: the angle, or the
    strengths.
    """

    kind: str
    of: tuple[Angle, ...]


@dataclass(frozen=True, eq=False)
class Factor:
    """constant + the sum of features times their parts, matrices (4, 4)."""

    constant: Transfer
    parts: tuple[tuple[Feature, Transfer], ...] = ()

    def before(self, other: Factor) -> Factor | None:
        """Both as one, `other` acting later; None if both have features."""
        if self.parts and other.parts:
            return None
        parts = [(feature, other.constant @ part) for feature, part in self.parts]
        parts += [(feature, part @ self.constant) for feature, part in other.parts]
        return Factor(other.constant @ self.constant, tuple(parts))

    @property
    def is_diagonal(self) -> bool:
        """Whether it has no features and multiplies each letter by a number."""
        return not self.parts and not (self.constant - np.diag(np.diag(self.constant))).any()


def transfer(kraus: Sequence[ArrayLike]) -> Transfer:
    """The matrix (4**n, 4**n) of the channel with these Kraus operators (2**n, 2**n); of a unitary, of it alone."""
    operators = [np.asarray(operator, dtype=complex) for operator in kraus]
    qubits = len(operators[0]).bit_length() - 1
    words = PAULIS
    for _ in range(qubits - 1):
        words = np.stack([np.kron(a, b) for a in words for b in PAULIS])
    images = sum(np.einsum("ab,qbc,dc->qad", k, words, k.conj()) for k in operators)
    found: Transfer = np.einsum("pab,qba->pq", words, images).real / 2**qubits
    return found


def rotation(letter: str, angle: Angle) -> Factor:
    """exp(-i angle/2 P) of a letter X, Y or Z."""
    axis = "IXYZ".index(letter)
    first, second = ((axis - 1 + step) % 3 + 1 for step in (1, 2))
    constant, cosine, sine = (np.zeros((4, 4)) for _ in range(3))
    constant[0, 0] = constant[axis, axis] = 1
    cosine[first, first] = cosine[second, second] = 1
    sine[second, first], sine[first, second] = 1, -1
    if angle.kind == "constant":
        turn = angle.factor
        return Factor(constant + math.cos(turn) * cosine + math.sin(turn) * sine)
    return Factor(constant, ((Feature("cos", (angle,)), cosine), (Feature("sin", (angle,)), sine)))


def _diagonal(*numbers: float) -> Transfer:
    return np.diag(np.array(numbers, dtype=float))


def _entry(row: int, column: int) -> Transfer:
    made = np.zeros((4, 4))
    made[row, column] = 1
    return made


_IDENTITY, _ALL, _FLAT = np.eye(4), _diagonal(0, 1, 1, 1), _diagonal(0, 1, 1, 0)
# The flips of each letter's sign by X, Y and Z.
_BY_X, _BY_Y, _BY_Z = _diagonal(0, 0, 1, 1), _diagonal(0, 1, 0, 1), _FLAT
_Z, _TO_Z = _entry(3, 3), _entry(3, 0)
_TO_ALL = sum((_entry(row, 0) for row in (1, 2, 3)), np.zeros((4, 4)))

# For each channel the terms of its matrix: numbers by the places of its strengths, each a kind of `Feature` and places; and
# a matrix. Terms without numbers are constant.
_Term = tuple[tuple[str, tuple[int, ...]] | None, Transfer]
_TERMS: dict[str, tuple[_Term, ...]] = {
    "BitFlip": ((None, _IDENTITY), (("strength", (0,)), -2 * _BY_X)),
    "PhaseFlip": ((None, _IDENTITY), (("strength", (0,)), -2 * _BY_Z)),
    "DepolarizingChannel": ((None, _IDENTITY), (("strength", (0,)), -4 / 3 * _ALL)),
    "PauliChannel": (
        (None, _IDENTITY),
        *((("strength", (k,)), -2 * flips) for k, flips in enumerate((_BY_X, _BY_Y, _BY_Z))),
    ),
    "AmplitudeDamping": (
        (None, _diagonal(1, 0, 0, 1)),
        (("root", (0,)), _FLAT),
        (("strength", (0,)), _TO_Z - _Z),
    ),
    "GeneralizedAmplitudeDamping": (
        (None, _diagonal(1, 0, 0, 1)),
        (("root", (0,)), _FLAT),
        (("strength", (0,)), _TO_Z - _Z),
        (("product", (0, 1)), -2 * _TO_Z),
    ),
    "PhaseDamping": ((None, _diagonal(1, 0, 0, 1)), (("root", (0,)), _FLAT)),
    "ResetError": (
        (None, _IDENTITY),
        (("strength", (0,)), _TO_Z - _ALL),
        (("strength", (1,)), -_TO_Z - _ALL),
    ),
    # A measured letter is read as 1 instead of 0, and as 0 instead of 1, with these probabilities.
    "Readout": (
        (None, _IDENTITY),
        (("strength", (0,)), -_TO_ALL - _ALL),
        (("strength", (1,)), _TO_ALL - _ALL),
    ),
}

_VALUES: dict[str, Callable[..., float]] = {
    "strength": lambda p: p,
    "root": lambda p: math.sqrt(1 - p),
    "product": lambda p, q: p * q,
}


def channel(name: str, columns: Sequence[Column]) -> Factor:
    """A channel on one qubit with strengths in these columns, or constants."""
    if name == "ThermalRelaxationError":
        excited, t1, t2, time = (column.value for column in columns)
        stays, coheres = math.exp(-time / t1), math.exp(-time / t2)
        return Factor(_diagonal(1, coheres, coheres, stays) + (1 - stays) * (1 - 2 * excited) * _TO_Z)
    strengths = [
        Angle(c.kind, c.index, 1.0) if c.kind != "constant" else Angle("constant", 0, c.value)
        for c in columns
    ]
    constant = np.zeros((4, 4))
    parts: dict[Feature, Transfer] = {}
    for number, matrix in _TERMS[name]:
        kind, places = number or ("product", ())
        of = [strengths[place] for place in places]
        trained = [each for each in of if each.kind != "constant"]
        if not trained:
            constant = constant + (_VALUES[kind](*(each.factor for each in of)) if of else 1.0) * matrix
            continue
        if len(trained) < len(of):  # a product with a constant
            kind = "strength"
            matrix = matrix * math.prod(each.factor for each in of if each.kind == "constant")
        feature = Feature(kind, tuple(trained))
        parts[feature] = parts.get(feature, 0) + matrix
    return Factor(constant, tuple(parts.items()))
