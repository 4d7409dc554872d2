"""Real coordinates of density matrices in an orthonormal basis of Hermitian matrices.

rho = sum_a r_a B_a with Tr(B_a B_b) = delta_ab has d**2 real coordinates r_a = Tr(B_a rho), and the Lindblad equation
becomes dr/dt = G r with real G. B_0 is the identity / sqrt(d), so that row 0 of G is zero: the trace is one of the
coordinates and never changes. For one qubit the others are the Bloch vector / sqrt(2).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.engines.dynamics.generators import Entries, entries
from ketscale.engines.operators import nonzero

Matrix = NDArray[np.complex128]

PAULI: dict[str, Matrix] = {
    "I": np.eye(2, dtype=complex),
    "X": np.array([[0, 1], [1, 0]], dtype=complex),
    "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.diag([1.0 + 0j, -1.0]),
}


@lru_cache(maxsize=64)
def hermitian_basis(dimension: int) -> Matrix:
    """The basis, (d**2, d, d)."""
    directions = _directions(dimension)
    basis: Matrix = directions / np.sqrt(_squares(directions))[:, None, None]
    return basis


@lru_cache(maxsize=64)
def _directions(dimension: int) -> Matrix:
    """The basis without its normalisation: Pauli words for qubits, else generalised Gell-Mann matrices, identity first.

    Pauli words give generators with the fewest entries.
    """
    if dimension & (dimension - 1) == 0:
        words, letters = np.eye(1, dtype=complex)[None], np.array([*PAULI.values()])
        for _ in range(dimension.bit_length() - 1):
            longer = words[:, None, :, None, :, None] * letters[:, None, :, None, :]
            words = longer.reshape(4 * len(words), *2 * [2 * words.shape[-1]])
        return words
    return np.array([np.eye(dimension, dtype=complex), *_gell_mann(dimension)])


def _gell_mann(dimension: int) -> list[Matrix]:
    """The generalised Gell-Mann matrices: symmetric, antisymmetric, diagonal."""
    matrices = []
    for j in range(dimension):
        for k in range(j + 1, dimension):
            unit = np.zeros((dimension, dimension), dtype=complex)
            unit[j, k] = 1
            matrices += [unit + unit.T, -1j * unit + 1j * unit.T]
    for k in range(1, dimension):
        matrices.append(np.diag([1.0 + 0j] * k + [-k] + [0.0] * (dimension - k - 1)))
    return matrices


def _squares(directions: Matrix) -> NDArray[np.float64]:
    """Tr(Q Q) of each direction Q."""
    squares: NDArray[np.float64] = np.einsum("aij,aji->a", directions, directions).real
    return squares


def commutator(operator: Matrix) -> Entries:
    """The entries of the real matrix, d**2 x d**2, of rho -> -i [operator, rho]."""
    directions = _directions(len(operator))
    return _matrix(-1j * (operator @ directions - directions @ operator), directions)


def dissipator(operator: Matrix) -> Entries:
    """The entries of the real matrix, d**2 x d**2, of rho -> L rho L^+ - (L^+ L rho + rho L^+ L) / 2 for an operator L."""
    directions, adjoint = _directions(len(operator)), operator.conj().T
    square = adjoint @ operator
    return _matrix(
        operator @ directions @ adjoint - (square @ directions + directions @ square) / 2, directions
    )


def _matrix(images: Matrix, directions: Matrix) -> Entries:
    # Normalised at the end: the integers of Pauli words stay integers, so that equal entries are equal numbers.
    squares = _squares(directions)
    flat, transposed = (
        np.ascontiguousarray(each.reshape(len(each), -1)).view(np.float64)
        for each in (directions, images.conj().swapaxes(1, 2))
    )
    matrix = flat @ transposed.T
    matrix /= np.sqrt(np.outer(squares, squares))
    return entries(np.where(np.abs(matrix) < 1e-14 * np.abs(matrix).max(initial=0), 0, matrix))


# With more levels this basis would be too large.
MOST_LEVELS = 16


def has_all_entries(levels: int) -> bool:
    """Whether the coordinates of rho are the real and imaginary parts of all its entries, 2 d**2, instead of this basis."""
    return levels > MOST_LEVELS


def schroedinger(operator: Any) -> Entries:
    """The entries of the real matrix, 2 d x 2 d, of psi -> -i operator psi on (Re psi_0, Im psi_0, Re psi_1, ...)."""
    rows, columns, values = nonzero(operator)
    return _paired(rows, columns, -1j * values)


def von_neumann(operator: Matrix) -> Entries:
    """The entries of the real matrix, 2 d**2 x 2 d**2, of rho -> -i [operator, rho] on (Re rho_00, Im rho_00, Re rho_01, ...)."""
    one = np.eye(len(operator), dtype=complex)
    return _sum_of_products((-1j * operator, one), (1j * one, operator.T))


def lindblad(operator: Matrix) -> Entries:
    """The entries of the real matrix, 2 d**2 x 2 d**2, of `dissipator` on (Re rho_00, Im rho_00, Re rho_01, ...)."""
    one, square = np.eye(len(operator), dtype=complex), operator.conj().T @ operator
    return _sum_of_products((operator, operator.conj()), (-square / 2, one), (-one / 2, square.T))


def _sum_of_products(*pairs: tuple[NDArray[Any], NDArray[Any]]) -> Entries:
    """The sum of Kronecker products, `_paired`."""
    # It takes 0.15 s to import, which small systems are to be spared.
    from scipy.sparse import coo_array, kron

    total = coo_array(sum(kron(coo_array(one), coo_array(other), format="csr") for one, other in pairs))
    rows, columns = total.coords
    return _paired(rows, columns, total.data)


def _paired(rows: NDArray[Any], columns: NDArray[Any], values: Matrix) -> Entries:
    """The entries of a complex matrix, as those of a real one on the real and imaginary parts of numbers in turn."""
    places = [(2 * rows + a, 2 * columns + b) for a, b in product(range(2), repeat=2)]
    row, column = np.concatenate(places, 1)
    value = np.concatenate([values.real, -values.imag, values.imag, values.real])
    order = np.lexsort((column, row))
    order = order[value[order] != 0]
    return tuple(zip(row[order].tolist(), column[order].tolist(), value[order].tolist(), strict=True))
