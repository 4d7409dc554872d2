"""Arithmetic of quaternions (w, x, y, z) in compiled code, which stand for the matrices w - i (x X + y Y + z Z) of two levels.

A Hamiltonian c + x X + y Y + z Z, with Pauli's matrices, has the exponential exp(-i c) q of the unit quaternion q with
w = cos r and the rest (x, y, z) sin(r) / r, where r = |(x, y, z)|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ketscale.engines.compiled.functions import polynomial, sincos
from ketscale.engines.compiled.language import Number, fma, fnma, select, sqrt

# Below an angle of 1, the power series of sin(r) / r and of its derivative in r**2, times 2; highest power first.
SINC = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1)]
SLOPE = [(-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(9, 0, -1)]

Vectors = Sequence[Number]  # the parts of a Hamiltonian or a quaternion


def exponential_of(hamiltonian: Vectors) -> tuple[list[Number], Number, Number]:
    """The quaternion of a Hamiltonian (c, x, y, z), sin(r) / r, and 2 times its derivative by r**2."""
    angles = hamiltonian[1:]
    square = dot(angles, angles)
    small = square < 1.0
    divisor = select(small, 1.0, square)
    sine, cosine = sincos(sqrt(square))
    sinc = select(small, polynomial(square, SINC), sine / sqrt(divisor))
    slope = select(small, polynomial(square, SLOPE), (cosine - sinc) / divisor)
    return [cosine, *(sinc * each for each in angles)], sinc, slope


def product(left: Vectors, right: Vectors) -> list[Number]:
    """The product of two quaternions."""
    w, x, y, z = left
    p, q, r, s = right
    return [
        fnma(z, s, fnma(y, r, fnma(x, q, w * p))),
        fnma(z, r, fma(y, s, fma(x, p, w * q))),
        fma(z, q, fma(y, p, fnma(x, s, w * r))),
        fma(z, p, fnma(y, q, fma(x, r, w * s))),
    ]


def inverse(unit: Vectors) -> list[Number]:
    """The inverse of a unit quaternion."""
    return [unit[0], *(-each for each in unit[1:])]


def dot(left: Vectors, right: Vectors) -> Number:
    """The sum of products."""
    total: Any = None
    for a, b in zip(left, right, strict=True):
        total = fma(a, b, total)
    made: Number = total
    return made
