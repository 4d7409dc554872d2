"""Operators on sites of a few levels: where they act among all product states, and whether they are Hermitian.

In the product basis the first site is the slowest index (leftmost in a Kronecker product), and so is the first site that an
operator acts on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.private_torch import is_differentiated

# Largest deviation of an operator from its adjoint, relative to its largest entry.
TOLERANCE = 1e-12
# Arrays on more states are made sparse.
MOST_DENSE = 512


class Term(NamedTuple):
    """An operator on some sites of a system.

    sites: their numbers from 0; the first is the operator's slowest index. operator: a matrix of these sites' states,
    (m, m), or its diagonal (m,) if the rest is 0: an array, a sparse array of SciPy's, or a tensor, whose gradients count.

    Example:
        >>> from ketscale import dynamics as kd
        >>> kd.System({"z_2": kd.Term([1], [1, -1])}, {"z_2": 0.5}, {}, levels=(3, 2)).dimension
        6
    """

    sites: Sequence[int]
    operator: Any

    @property
    def is_diagonal(self) -> bool:
        """Whether the operator is given by its diagonal."""
        return np.ndim(self.operator) == 1

    @property
    def matrix(self) -> Any:
        """The operator as a matrix (m, m), of the same kind."""
        if not self.is_diagonal:
            return self.operator
        if isinstance(self.operator, torch.Tensor):
            return torch.diag(self.operator)
        if len(self.operator) <= MOST_DENSE:
            return np.diag(self.operator)
        from scipy.sparse import diags_array

        return diags_array(self.operator).tocsr()


class Terms(Mapping[str, Any]):
    """Terms by name, read as matrices of all sites, complex (d, d).

    These are arrays, sparse ones above 512 states, or tensors with gradients. own: the terms themselves.
    """

    def __init__(self, own: Mapping[str, Term], levels: Sequence[int]) -> None:
        self.own, self._levels = dict(own), tuple(levels)
        self._cache: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._cache:
            return self._cache[name]
        sites, operator = self.own[name].sites, self.own[name].matrix
        followed = is_differentiated(self.own[name].operator)
        if followed:
            operator = operator.to(torch.complex128)
        elif isinstance(operator, torch.Tensor):
            operator = operator.numpy(force=True).astype(complex)
        if list(sites) != list(range(len(self._levels))):
            operator = embedded(operator, sites, self._levels)
        if hasattr(operator, "toarray") and operator.shape[0] <= MOST_DENSE:
            operator = operator.toarray()
        if isinstance(operator, np.ndarray):
            operator.flags.writeable = False
        # A tensor's graph may be gone, or its values others, when somebody looks again.
        return operator if followed else self._cache.setdefault(name, operator)

    def sources(self) -> dict[str, Any]:
        """What makes the same terms of a system with the same states, also if they are divided among other sites."""
        every = tuple(range(len(self._levels)))
        return {
            name: each if each.is_diagonal or tuple(each.sites) != every else each.operator
            for name, each in self.own.items()
        }

    def __repr__(self) -> str:
        return f"Terms({', '.join(self.own)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)


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
    matrix = operator if hasattr(operator, "shape") else np.asarray(operator, dtype=complex)
    size = states_of(sites, levels)
    if tuple(matrix.shape) != (size, size):
        raise UserError(
            f"operator: on sites {list(sites)} it must be {size} x {size}, not of shape {tuple(matrix.shape)}"
        )
    others = [site for site in range(len(levels)) if site not in sites]
    d, order = prod(levels), [*sites, *others]
    if isinstance(matrix, torch.Tensor):
        identity = torch.eye(d // size, dtype=matrix.dtype, device=matrix.device)
        axes = [order.index(site) for site in range(len(levels))]
        tensor = torch.kron(matrix, identity).reshape([levels[site] for site in order] * 2)
        return tensor.permute(*axes, *(axis + len(levels) for axis in axes)).reshape(d, d)
    own, rest = _places(sites, levels), _places(others, levels)
    first, second, entries = nonzero(matrix)
    rows, columns = ((own[each][:, None] + rest).ravel() for each in (first, second))
    values = entries.repeat(len(rest))
    if d > MOST_DENSE:
        from scipy.sparse import csr_array

        return csr_array((values, (rows, columns)), (d, d), dtype=complex)
    result = np.zeros((d, d), dtype=complex)
    result[rows, columns] = values
    return result


def states_of(sites: Sequence[int], levels: Sequence[int]) -> int:
    """How many states some sites have together.

    Raises:
        UserError: a site does not exist or is named twice.
    """
    listed = isinstance(sites, Sequence) and all(isinstance(site, (int, np.integer)) for site in sites)
    if not listed or not len(sites):
        raise UserError(f"sites: {sites!r} must be a list of one or more numbers, such as [0, 1]")
    if len(set(sites)) != len(sites) or not set(sites) <= set(range(len(levels))):
        raise UserError(f"sites: {list(sites)} are not different sites from 0 to {len(levels) - 1}")
    return prod(levels[site] for site in sites)


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
    places = np.zeros(1, dtype=np.int64)
    for site in sites:
        places = (places[:, None] + np.arange(levels[site])[:most] * prod(levels[site + 1 :])).ravel()
    return places


def check_pairs(pairs: Sequence[tuple[int, int]], sites: int) -> None:
    """Raise UserError unless each pair names two different sites."""
    for first, second in pairs:
        if first == second or not {first, second} <= set(range(sites)):
            raise UserError(f"pairs: {first}, {second} are not two different sites from 0 to {sites - 1}")


def check_hermitian(what: str, operators: Any, tolerance: float = TOLERANCE, instead: str = "") -> None:
    """Raise UserError unless operators (..., d, d), an array, a sparse array or a tensor, are Hermitian and finite.

    what: their name, for the error; instead: what to give.
    """
    values = operators.detach() if isinstance(operators, torch.Tensor) else operators
    if 0 in values.shape:
        return
    adjoint = values.conj().T if values.ndim == 2 else values.conj().mT
    off = float(abs(values - adjoint).max())
    if not off <= tolerance * float(abs(values).max()):
        raise UserError(f"{what}: is not Hermitian (it differs from its adjoint by {off:.1e}){instead}")
