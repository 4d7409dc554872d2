"""Operators on sites of a few levels: where they act among all product states, and whether they are Hermitian.

In the product basis the first site is the slowest index (leftmost in a Kronecker product), and so is the first site that an
operator acts on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.errors import UserError

# Largest deviation of an operator from its adjoint, relative to its largest entry.
TOLERANCE = 1e-12
# Arrays on more states are made sparse.
MOST_DENSE = 512


def embedded(operator: Any, sites: Sequence[int], levels: Sequence[int]) -> Any:
    """An operator on some sites, the first of them its slowest index, as a matrix on all sites, complex (d, d).

    operator: an array or a sparse array; a tensor makes a tensor, differentiable. sites: numbers from 0. levels: of each
        site; d is their product. Above 512 the matrix of an array is a sparse array of SciPy's.

    Raises:
        UserError: a site does not exist or is named twice, or the operator has another size.

    Example:
        >>> embedded([[0, 1], [1, 0]], [1], (2, 2)).real.astype(int)[0]
        array([0, 1, 0, 0])
    """
    given = operator if hasattr(operator, "shape") else np.asarray(operator, dtype=complex)
    if len(set(sites)) != len(sites) or not set(sites) <= set(range(len(levels))):
        raise UserError(f"sites: {list(sites)} are not different sites from 0 to {len(levels) - 1}")
    size = prod(levels[site] for site in sites)
    if tuple(given.shape) != (size, size):
        raise UserError(
            f"operator: on sites {list(sites)} it must be {size} x {size}, not of shape {tuple(given.shape)}"
        )
    others = [site for site in range(len(levels)) if site not in sites]
    d, order = prod(levels), [*sites, *others]
    if isinstance(given, torch.Tensor):
        identity = torch.eye(d // size, dtype=given.dtype, device=given.device)
        axes = [order.index(site) for site in range(len(levels))]
        tensor = torch.kron(given, identity).reshape([levels[site] for site in order] * 2)
        return tensor.permute(*axes, *(axis + len(levels) for axis in axes)).reshape(d, d)
    own, rest = _places(sites, levels), _places(others, levels)
    first, second, entries = nonzero(given)
    rows, columns = ((own[each][:, None] + rest).ravel() for each in (first, second))
    values = entries.repeat(len(rest))
    if d > MOST_DENSE:
        from scipy.sparse import csr_array

        return csr_array((values, (rows, columns)), (d, d), dtype=complex)
    made = np.zeros((d, d), dtype=complex)
    made[rows, columns] = values
    return made


def nonzero(operator: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.complex128]]:
    """Rows, columns and values of the nonzero entries of an array or a sparse array, in the order of rows and columns."""
    if isinstance(operator, np.ndarray):
        rows, columns = np.nonzero(operator)
        return rows, columns, operator[rows, columns]
    entries = operator.tocoo()
    rows, columns = (each.astype(np.int64) for each in entries.coords)
    return rows, columns, entries.data


def computational_places(levels: Sequence[int]) -> NDArray[np.int64]:
    """The places of the product states of each site's two lowest levels, (2**sites,), in the order of bits."""
    return _places(range(len(levels)), levels, 2)


def _places(sites: Sequence[int], levels: Sequence[int], most: int | None = None) -> NDArray[np.int64]:
    """The places of some sites' states (of the `most` lowest levels) among those of all, the other sites in level 0."""
    made = np.zeros(1, dtype=np.int64)
    for site in sites:
        made = (made[:, None] + np.arange(most or levels[site]) * prod(levels[site + 1 :])).ravel()
    return made


def check_pairs(pairs: Sequence[tuple[int, int]], sites: int) -> None:
    """Raise UserError unless each pair names two different sites."""
    for first, second in pairs:
        if first == second or not {first, second} <= set(range(sites)):
            raise UserError(f"pairs: {first}, {second} are not two different sites from 0 to {sites - 1}")


def check_hermitian(what: str, operators: Any, tolerance: float = TOLERANCE, instead: str = "") -> None:
    """Raise UserError unless operators (..., d, d), an array, a sparse array or a tensor, are Hermitian and finite.

    what: their name, for the error; instead: what to give.
    """
    given = operators.detach() if isinstance(operators, torch.Tensor) else operators
    if 0 in given.shape:
        return
    adjoint = given.conj().T if given.ndim == 2 else given.conj().mT
    off = float(abs(given - adjoint).max())
    if not off <= tolerance * float(abs(given).max()):
        raise UserError(f"{what}: is not Hermitian (it differs from its adjoint by {off:.1e}){instead}")
