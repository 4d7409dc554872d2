"""Families of linear systems dr/dt = G r, whose real matrix G is a sum of fixed matrices with coefficients.

A state of a family has `size` real coordinates. Its batches are tasks, each with its own coefficients:

- `fixed` (tasks, F): coefficients that hold for the whole evolution, such as rates,
- `controls` (tasks, segments, K): coefficients that are constant over each segment.

Both kinds of matrices are given by their nonzero entries, since few entries of a Lindblad generator are nonzero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

# (row, column, value), in the order of rows and columns.
Entries = tuple[tuple[int, int, float], ...]


def entries(matrix: NDArray[np.float64]) -> Entries:
    """The nonzero entries of a matrix."""
    return tuple((int(row), int(column), float(matrix[row, column])) for row, column in np.argwhere(matrix))


@dataclass(frozen=True)
class Generators:
    """G = sum_f fixed_f fixed[f] + sum_k control_k controlled[k], as `size` x `size` matrices.

    paired: whether coordinates 2n and 2n + 1 are the real and the imaginary part of a number that complex matrices act on.
    tangents: how many times the family was extended by `with_tangent`.
    """

    size: int
    fixed: tuple[Entries, ...]
    controlled: tuple[Entries, ...]
    paired: bool = False
    tangents: int = 0

    # Cached, since every evolution asks for it.
    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.size, self.fixed, self.controlled, self.paired, self.tangents))

    def __reduce__(self) -> tuple[type[Generators], tuple[object, ...]]:
        return Generators, (self.size, self.fixed, self.controlled, self.paired, self.tangents)

    @cached_property
    def with_tangent(self) -> Generators:
        """The family of (r, p) with dp/dt = G p + G' r, where G' has the same matrices and other coefficients.

        So p is the derivative of r in the direction in which the coefficients change by those of G'. The coefficients
        are those of G and then those of G', in `fixed` and `controls` each.
        """
        n = self.size

        def extended(matrices: tuple[Entries, ...]) -> tuple[Entries, ...]:
            both = tuple(
                tuple(sorted(each + tuple((row + n, column + n, value) for row, column, value in each)))
                for each in matrices
            )
            return both + tuple(
                tuple((row + n, column, value) for row, column, value in each) for each in matrices
            )

        return Generators(
            2 * n, extended(self.fixed), extended(self.controlled), self.paired, self.tangents + 1
        )

    @cached_property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Coefficient (fixed ones first), row, column and value of each matrix's entries, by row, column and coefficient."""
        matrices = [np.array(each, dtype=float).reshape(-1, 3) for each in (*self.fixed, *self.controlled)]
        coefficients = np.repeat(np.arange(len(matrices)), [len(each) for each in matrices])
        rows, columns, values = np.concatenate([np.empty((0, 3)), *matrices]).T
        order = np.lexsort((coefficients, columns, rows))
        places = (each[order].astype(np.int64) for each in (coefficients, rows, columns))
        return *places, values[order]

    @cached_property
    def entry_count(self) -> int:
        """The entries of G."""
        _, rows, columns, _ = self.arrays
        return len(np.unique(rows * self.size + columns))

    @cached_property
    def norms(self) -> torch.Tensor:
        """The largest sum of a row's sizes in the matrix of each coefficient, fixed ones first, in fp64."""
        coefficients, rows, _, values = self.arrays
        count = len(self.fixed) + len(self.controlled)
        sums = np.bincount(coefficients * self.size + rows, np.abs(values), count * self.size)
        return torch.from_numpy(sums.reshape(count, self.size).max(1))

    @property
    def normed_rows(self) -> int:
        """The rows from 0 whose norm decides how finely time is divided.

        A tangent is linear in its direction, whose length must not count: the error relative to it depends only on the
        norm of the original G (Al-Mohy and Higham, SIAM J. Matrix Anal. Appl. 30, 1639, 2009, section 6).
        """
        return self.size >> self.tangents

    def dense(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The matrices (F, size, size) and (K, size, size), of the precision and on the device of `like`.

        If they are `paired`, they are the complex ones, of half the size.
        """
        return _dense(self, like.dtype, like.device)


@lru_cache(maxsize=64)
def _dense(
    generators: Generators, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    coefficients, rows, columns, values = generators.arrays
    fixed, count = len(generators.fixed), len(generators.fixed) + len(generators.controlled)
    stack = np.zeros((count, generators.size, generators.size))
    stack[coefficients, rows, columns] = values
    made = torch.from_numpy(stack)
    if generators.paired:
        made = torch.complex(made[:, ::2, ::2], made[:, 1::2, ::2])
    made = made.to(device, dtype.to_complex() if generators.paired else dtype)
    return made[:fixed], made[fixed:]
