"""Real coordinates of density matrices in an orthonormal basis of Hermitian matrices.

rho = sum_a r_a B_a with Tr(B_a B_b) = delta_ab has d**2 real coordinates r_a = Tr(B_a rho), and the Lindblad equation
becomes dr/dt = G r with real G. B_0 is the identity / sqrt(d), so that row 0 of G is zero: the trace is one of the
coordinates and never changes. For one qubit the others are the Bloch vector / sqrt(2).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.complex128]

PAULI: dict[str, Matrix] = {
    "I": np.eye(2, dtype=complex),
    "X": np.array([[0, 1], [1, 0]], dtype=complex),
    "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.diag([1.0 + 0j, -1.0]),
}


def word(letters: str) -> Matrix:
    """The Kronecker product of Pauli matrices, such as 'XI'; the first letter is the most significant qubit."""
    made = np.eye(1, dtype=complex)
    for letter in letters:
        made = np.kron(made, PAULI[letter])
    return made


@lru_cache(maxsize=64)
def hermitian_basis(dimension: int) -> Matrix:
    """The basis, (d**2, d, d)."""
    directions = _directions(dimension)
    made: Matrix = directions / np.sqrt(_squares(directions))[:, None, None]
    return made


@lru_cache(maxsize=64)
def _directions(dimension: int) -> Matrix:
    """The basis without its normalisation: Pauli words for qubits, else generalised Gell-Mann matrices, identity first.

    Pauli words give generators with the fewest entries.
    """
    if dimension & (dimension - 1) == 0:
        qubits = dimension.bit_length() - 1
        made = [word("".join(letters)) for letters in product("IXYZ", repeat=qubits)]
    else:
        made = [np.eye(dimension, dtype=complex), *_gell_mann(dimension)]
    return np.array(made)


def _gell_mann(dimension: int) -> list[Matrix]:
    """The generalised Gell-Mann matrices: symmetric, antisymmetric, diagonal."""
    made = []
    for j in range(dimension):
        for k in range(j + 1, dimension):
            unit = np.zeros((dimension, dimension), dtype=complex)
            unit[j, k] = 1
            made += [unit + unit.T, -1j * unit + 1j * unit.T]
    for k in range(1, dimension):
        made.append(np.diag([1.0 + 0j] * k + [-k] + [0.0] * (dimension - k - 1)))
    return made


def _squares(directions: Matrix) -> NDArray[np.float64]:
    """Tr(Q Q) of each direction Q."""
    made: NDArray[np.float64] = np.einsum("aij,aji->a", directions, directions).real
    return made


def commutator(operator: Matrix) -> NDArray[np.float64]:
    """The real matrix, d**2 x d**2, of rho -> -i [operator, rho]."""
    directions = _directions(len(operator))
    return _matrix(-1j * (operator @ directions - directions @ operator), directions)


def dissipator(operator: Matrix) -> NDArray[np.float64]:
    """The real matrix, d**2 x d**2, of rho -> L rho L^+ - (L^+ L rho + rho L^+ L) / 2 for an operator L."""
    directions, adjoint = _directions(len(operator)), operator.conj().T
    square = adjoint @ operator
    return _matrix(
        operator @ directions @ adjoint - (square @ directions + directions @ square) / 2, directions
    )


def _matrix(images: Matrix, directions: Matrix) -> NDArray[np.float64]:
    # Normalised at the end: the integers of Pauli words stay integers, so that equal entries are equal numbers.
    squares = _squares(directions)
    made: NDArray[np.float64] = np.einsum("aij,bji->ab", directions, images).real
    made /= np.sqrt(np.outer(squares, squares))
    return np.where(np.abs(made) < 1e-14 * np.abs(made).max(initial=0), 0, made)
