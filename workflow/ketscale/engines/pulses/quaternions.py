"""Writes arithmetic of quaternions (w, x, y, z), which stand for the matrices w - i (x X + y Y + z Z) of two levels.

A Hamiltonian c + x X + y Y + z Z, with Pauli's matrices, has the exponential exp(-i c) q of the unit quaternion q with
w = cos r and the rest (x, y, z) sin(r) / r, where r = |(x, y, z)|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ketscale.engines.compiled.vector import Value, Writer

# Below an angle of 1, the power series of sin(r) / r and of its derivative in r**2, times 2; highest power first.
SINC = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1)]
SLOPE = [(-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(9, 0, -1)]

Vectors = Sequence[Value]  # the parts of a Hamiltonian or a quaternion


def exponential_of(w: Writer, hamiltonian: Vectors) -> tuple[list[Value], Value, Value]:
    """The quaternion of a Hamiltonian (c, x, y, z), sin(r) / r, and 2 times its derivative by r**2."""
    b, angles = w.b, hamiltonian[1:]
    square, one = dot(w, angles, angles), w.constant(1.0)
    small = b.fcmp_ordered("<", square, one)
    divisor = b.select(small, one, square)
    sine, cosine = w.sincos(w.sqrt(square))
    sinc = b.select(small, w.polynomial(square, SINC), b.fdiv(sine, w.sqrt(divisor)))
    slope = b.select(small, w.polynomial(square, SLOPE), b.fdiv(b.fsub(cosine, sinc), divisor))
    return [cosine, *(b.fmul(sinc, each) for each in angles)], sinc, slope


def product(writer: Writer, left: Vectors, right: Vectors) -> list[Value]:
    """Of two quaternions."""
    w, x, y, z = left
    p, q, r, s = right
    return [
        _signed(writer, ((w, p), (x, q), (y, r), (z, s)), "+---"),
        _signed(writer, ((w, q), (x, p), (y, s), (z, r)), "+++-"),
        _signed(writer, ((w, r), (x, s), (y, p), (z, q)), "+-++"),
        _signed(writer, ((w, s), (x, r), (y, q), (z, p)), "++-+"),
    ]


def inverse(w: Writer, unit: Vectors) -> list[Value]:
    """Of a unit quaternion."""
    return [unit[0], *(w.b.fneg(each) for each in unit[1:])]


def dot(w: Writer, left: Vectors, right: Vectors) -> Value:
    """The sum of products."""
    return _signed(w, list(zip(left, right, strict=True)), "+" * len(left))


def times(w: Writer, one: Vectors, other: Vectors) -> tuple[Value, Value]:
    """Of two complex numbers."""
    (u, v), (x, y) = one, other
    return _signed(w, ((u, x), (v, y)), "+-"), _signed(w, ((u, y), (v, x)), "++")


def _signed(w: Writer, products: Sequence[tuple[Value, Value]], signs: str) -> Value:
    """The sum of products with these signs."""
    total = None
    for (a, b), sign in zip(products, signs, strict=True):
        total = w.fma(a, b, total, negate=sign == "-")
    return total
