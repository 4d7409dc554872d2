"""Families of linear systems dr/dt = G r, whose real matrix G is a sum of fixed matrices with coefficients, and how they evolve.

A state of a family has `size` real coordinates. Its batches are tasks, each with its own coefficients:

- `fixed` (tasks, F): coefficients that hold for the whole evolution, such as rates,
- `controls` (tasks, segments, K): coefficients that are constant over each segment.

Both kinds of matrices are given by their nonzero entries, since few entries of a Lindblad generator are nonzero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.methods import MOST_STEPS
from ketscale.errors import UserError
from ketscale.private_torch import unwrapped

# (row, column, value), in the order of rows and columns.
Entries = tuple[tuple[int, int, float], ...]


def entries(matrix: NDArray[np.float64]) -> Entries:
    """The nonzero entries of a matrix."""
    rows, columns = np.nonzero(matrix)
    return tuple(zip(rows.tolist(), columns.tolist(), matrix[rows, columns].tolist(), strict=True))


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
    def by_segment(self) -> Generators:
        """The same family, all of whose coefficients are those of segments, fixed ones first."""
        return Generators(self.size, (), (*self.fixed, *self.controlled), self.paired)

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
        # They are in order.
        return int(np.count_nonzero(np.diff(rows * self.size + columns, prepend=-1)))

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """The largest sum of a row's sizes in the matrix of each coefficient, fixed ones first."""
        coefficients, rows, _, values = self.arrays
        count = len(self.fixed) + len(self.controlled)
        sums = np.bincount(coefficients * self.size + rows, np.abs(values), count * self.size)
        norms: NDArray[np.float64] = sums.reshape(count, self.size).max(1)
        return norms

    @property
    def normed_rows(self) -> int:
        """The rows from 0 whose norm determines how finely time is divided.

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
    stack: NDArray[Any] = np.zeros((count, generators.size, generators.size))
    stack[coefficients, rows, columns] = values
    if generators.paired:
        stack = stack[:, ::2, ::2] + 1j * stack[:, 1::2, ::2]
    # The first caller may be in inference mode or in torch.func, and the next one want a gradient.
    with torch.inference_mode(False):
        shared, controlled = (
            unwrapped(torch.from_numpy(each).to(device, dtype.to_complex() if generators.paired else dtype))
            for each in (stack[:fixed], stack[fixed:])
        )
    return shared, controlled


# How a segment is evolved: by the exponential of its generator, or by a Runge-Kutta integrator.
Scheme = Literal["exact", "rk4", "euler"]


class Division(NamedTuple):
    """How a segment is divided into steps, and the degree of each step's Taylor polynomial of the exponential.

    degrees, reaches: ascending; a degree serves steps in which the norm of G t is at most its reach. Each task and
        segment has the lowest degree that serves it in one step, or as many steps of the highest one as it needs, so
        that a result depends on no other task. Without reaches there is one degree, and `steps` of it.
    largest: the largest norm of G t over a segment, beyond which too few digits are right.
    """

    degrees: tuple[int, ...]
    reaches: tuple[float, ...] = ()
    steps: int = 0
    largest: float = math.inf


class Evolution(NamedTuple):
    """A family of linear systems, the time that each segment takes, and its division.

    kets: whether its states are kets, and its matrices -i times Hermitian ones.
    """

    generators: Generators
    tau: float
    division: Division
    kets: bool = False


# Backward errors below rounding (Al-Mohy and Higham, SIAM J. Sci. Comput. 33, 488, 2011, table 3.1). Longer steps are
# cheaper for their length, but their terms are large and cancel.
EXACT = {
    torch.float64: Division((10, 15, 20, 25, 30), (0.14, 0.64, 1.4, 2.4, 3.5), largest=1e9),
    torch.float32: Division((5, 10, 15), (0.13, 1.0, 2.2), largest=220_000),
}

# On a linear system whose coefficients are constant, a Runge-Kutta step of order p is the polynomial of degree p.
DEGREES: dict[Scheme, int] = {"rk4": 4, "euler": 1}


def substeps(segment: float, dt: float) -> int:
    """The number of equal steps of a segment, none longer than `dt`.

    Raises:
        UserError: there are more than `MOST_STEPS`.
    """
    # Written so that NaN is rejected too.
    if not segment / MOST_STEPS <= dt:
        raise UserError(
            f"dt: {dt} makes more than {MOST_STEPS:,} steps of a segment of length {segment:.6g}; use a longer one"
        )
    # The quotient of 0.9 and 0.3 is a hair above 3.
    return max(1, math.ceil(segment / dt * (1 - 1e-9)))
