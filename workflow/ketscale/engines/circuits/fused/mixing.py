"""phi = alpha psi + beta (psi with its wires reversed) + constant, tile by tile, and its backward pass.

The arguments are one array of complex numbers: alpha, beta, then the constant in the order of a tile's amplitudes. A table
has each amplitude and its partner, which the reversal puts in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from ketscale.engines.compiled.language import Buffer, Complex, FunctionCode, fma, lane_sum


def mix(k: FunctionCode, partners: Buffer, factors: Buffer, psi: Buffer, phi: Buffer) -> None:
    """Fill `phi` from `psi`, two different buffers."""
    with k.loop(partners.shape[0]) as i:
        place = partners[i, 0]
        mixed = _splat(factors[place + 2])
        for factor, at in enumerate((place, partners[i, 1])):
            mixed = fma(_splat(factors[factor]), psi[at], mixed)
        phi[place] = mixed


def undo_mix(
    k: FunctionCode,
    partners: Buffer,
    factors: Buffer,
    psi: Buffer,
    adjoint: Buffer,
    undone: Buffer,
    row: Buffer | None,
) -> None:
    """Fill `undone`, psi's adjoint, from phi's.

    row: the tile's gradients by alpha, beta and the constant, or None if they are not wanted.
    """
    sums = [k.variable(Complex(k.vector(0.0), k.vector(0.0))) for _ in range(2)]
    with k.loop(partners.shape[0]) as i:
        place, partner = partners[i, 0], partners[i, 1]
        own, back = adjoint[place], None
        for factor, at in enumerate((place, partner)):
            back = fma(_splat(factors[factor]).conjugate(), adjoint[at], back)
        undone[place] = back
        if row is not None:
            # The constant's gradient is the adjoint's total; the others' have conj(psi) times it.
            for total, at in zip(sums, (place, partner), strict=True):
                state, before = psi[at], total.value
                total.value = Complex(
                    fma(state.real, own.real, fma(state.imag, own.imag, before.real)),
                    fma(state.real, own.imag, fma(-state.imag, own.real, before.imag)),
                )
            row[place + 2] = _twice_total(own)
    if row is not None:
        for factor, total in enumerate(sums):
            row[factor] = _twice_total(total.value)


def _twice_total(vectors: Complex) -> Complex:
    """Twice the sums of the lanes, since a derivative is twice a product with the adjoint."""
    sums = (lane_sum(part).lane(0) for part in (vectors.real, vectors.imag))
    return Complex(*(total + total for total in sums))


def _splat(scalar: Complex) -> Complex:
    return Complex(scalar.real.splat(), scalar.imag.splat())


def pairs_of(partners: Sequence[int]) -> list[tuple[int, int]]:
    """Each amplitude and its partner: those that the reversal exchanges, next to each other, and then those that it leaves."""
    exchanged = [pair for p, q in enumerate(partners) if p < q for pair in ((p, q), (q, p))]
    return exchanged + [(p, q) for p, q in enumerate(partners) if p == q]
