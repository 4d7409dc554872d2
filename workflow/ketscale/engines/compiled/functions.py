"""Sine, cosine, exponential, logarithm and polynomials of compiled kernels, for vectors of either precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from ketscale.engines.compiled.language import (
    DOUBLE,
    FLOAT,
    I32,
    Number,
    absolute,
    fma,
    fnma,
    maximum,
    minimum,
    select,
)
from ketscale.engines.compiled.library import has


class Constants(NamedTuple):
    """The constants of the functions for one precision.

    bits, mantissa: of a float, and of its mantissa. magic: 1.5 * 2**mantissa: adding it rounds to an integer.
    half_pi, ln2: pi/2 and ln 2 in parts, largest first (Cody and Waite's argument reduction).
    sin, cos: coefficients of x**2, highest power first (Cephes, S. Moshier: |error| about 1 ulp).
    degree: of the Taylor polynomial of e**x. lowest, highest: the range of x whose e**x is a normal number.
    above, below: tanh x = x + x^3 above(x^2) / below(x^2) below 0.625 (Cephes).
    least: the bits of sqrt(1/2), the least mantissa of a logarithm. terms: of its series, besides the first.
    """

    bits: int
    mantissa: int
    magic: float
    half_pi: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    ln2: tuple[float, float]
    degree: int
    lowest: float
    highest: float
    above: tuple[float, ...]
    below: tuple[float, ...]
    least: int
    terms: int


_SINGLE = Constants(
    bits=32,
    mantissa=23,
    magic=12582912.0,
    half_pi=(1.57079637050628662109375, -4.37113900018624283e-8, 1.7151245100058e-15),
    sin=(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    cos=(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    ln2=(0.693359375, -2.12194440e-4),
    degree=7,
    lowest=-87.0,
    highest=88.0,
    above=(-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1),
    below=(),
    least=0x3F3504F3,
    terms=5,
)
_DOUBLE = Constants(
    bits=64,
    mantissa=52,
    magic=6755399441055744.0,
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
    sin=(
        1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
        -1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1,
    ),
    cos=(
        -1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7,
        2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2,
    ),
    ln2=(6.93147180369123816490e-01, 1.90821492927058770002e-10),
    degree=13,
    lowest=-708.0,
    highest=709.0,
    above=(-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3),
    below=(1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3),
    least=0x3FE6A09E667F3BCD,
    terms=10,
)  # fmt: skip


def sincos(x: Number) -> tuple[Number, Number]:
    """Sine and cosine of the angles `x` in radians, accurate to a few ulp for |x| up to about 1e5."""
    k = _constants(x)
    shifted = fma(x, 2 / math.pi, k.magic)
    turns, r = shifted - k.magic, x
    for part in k.half_pi:
        r = fnma(turns, part, r)
    square = r * r
    sine = fma(square * polynomial(square, k.sin), r, r)
    cosine = fma(_constant(x, -0.5), square, 1.0) + square * square * polynomial(square, k.cos)
    quadrant = shifted.bits()
    odd = (quadrant & 1) != 0
    flips = (quadrant & 2) << (k.bits - 2), ((quadrant + 1) & 2) << (k.bits - 2)
    values = select(odd, cosine, sine), select(odd, sine, cosine)
    signed = [(value.bits() ^ flip).bits(x.element) for value, flip in zip(values, flips, strict=True)]
    return signed[0], signed[1]


def exp(x: Number) -> Number:
    """e to the power of `x`, accurate to a few ulp; where it would under- or overflow, the last normal value."""
    k = _constants(x)
    x = minimum(k.highest, maximum(k.lowest, x))
    shifted = fma(x, 1 / math.log(2), k.magic)
    powers, r = shifted - k.magic, x
    for part in k.ln2:
        r = fnma(powers, part, r)
    value = polynomial(r, [1 / math.factorial(i) for i in range(k.degree, -1, -1)])
    return (value.bits() + (shifted.bits() << k.mantissa)).bits(x.element)


def tanh(x: Number) -> Number:
    """The hyperbolic tangent, accurate to a few ulp; NaN of NaN."""
    k, size = _constants(x), absolute(x)
    # Near 0 the other formula would lose digits.
    square = x * x
    near = polynomial(square, k.above)
    if k.below:
        near = near / polynomial(square, k.below)
    small = fma(x * square, near, x)
    large = 1.0 - 2.0 / (exp(size + size) + 1.0)
    sign = k.bits - 1
    signed = (large.bits() | ((x.bits() >> sign) << sign)).bits(x.element)
    result: Number = select(size > 0.625, signed, small)
    return result


def log(x: Number) -> Number:
    """The natural logarithm of positive normal numbers `x`, accurate to a few ulp."""
    k, bits = _constants(x), x.bits()
    power = (bits - k.least).signed >> k.mantissa
    mantissa = (bits - (power << k.mantissa)).bits(x.element)
    # log m = 2 artanh s = 2 (s + s^3/3 + ...), for m from sqrt(1/2) to sqrt(2).
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    tail = polynomial(square, [2 / (2 * term + 1) for term in range(k.terms, 0, -1)])
    value: Number = fma(s * square, tail, s + s)
    powers = power.as_float()
    for part in reversed(k.ln2):
        value = fma(powers, part, value)
    return value


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """The polynomial with these coefficients, highest power first, by Horner's rule."""
    value = _constant(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = fma(value, x, coefficient)
    return value


def _constant(x: Number, value: float) -> Number:
    return x.code.constant(value, x.type)


def _constants(x: Number) -> Constants:
    return _DOUBLE if x.element == DOUBLE else _SINGLE


def lanes_flipped(vector: Number, flip: Number) -> Number:
    """A vector of floats whose lane i is its lane i ^ flip, where `flip` is not known as the code is written."""
    k, bits = vector.code, vector.lanes * vector.code.bytes * 8
    name, feature = {
        256: ("llvm.x86.avx2.permps", "avx2"),
        512: ("llvm.x86.avx512.permvar.sf.512", "avx512f"),
    }.get(bits, ("", ""))
    if not has(feature):
        for bit in range(vector.lanes.bit_length() - 1):
            crossed = vector.shuffled([lane ^ 1 << bit for lane in range(vector.lanes)])
            vector = select((flip >> bit & 1) != 0, crossed, vector)
        return vector
    # The instruction moves 32 bits at a time: halves of a double together.
    index = k.constant(range(bits // 32), ir.VectorType(I32, bits // 32))
    index ^= (flip << (k.bytes // 8)).truncated(I32)
    floats = ir.VectorType(FLOAT, bits // 32)
    function = k.module.globals.get(name) or ir.Function(
        k.module, ir.FunctionType(floats, [floats, index.type]), name
    )
    result = k.b.call(function, [k.b.bitcast(vector.value, floats), index.value])
    return Number(k, k.b.bitcast(result, vector.type))
