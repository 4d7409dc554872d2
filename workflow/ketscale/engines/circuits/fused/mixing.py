"""phi = alpha psi + beta (psi with its wires reversed) + constant, tile by tile, and its backward pass.

The amplitudes are processed by orbits of the reversal, pairs and single ones, so psi and the adjoint need no second
copy. The arguments are one array of complex numbers: alpha, beta, then the constant in the order of a tile's amplitudes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ketscale.engines.compiled.language import Buffer, Complex, FunctionCode, Number, fma, lane_sum


def mix(k: FunctionCode, orbits: Sequence[Buffer], factors: Buffer, psi: Buffer, phi: Buffer) -> None:
    """Fill `phi` from `psi`, two different buffers."""
    for table in orbits:
        with _loop(k, table) as places:
            states = [psi[place] for place in places]
            for number, place in enumerate(places):
                mixed = _splat(factors[place + 2])
                for factor, state in enumerate((states[number], states[number - 1])):
                    mixed = fma(_splat(factors[factor]), state, mixed)
                phi[place] = mixed


def undo_mix(
    k: FunctionCode,
    orbits: Sequence[Buffer],
    factors: Buffer,
    psi: Buffer,
    adjoint: Buffer,
    row: Buffer | None,
    sums: Buffer,
) -> None:
    """Turn phi's adjoint into psi's.

    row: the tile's gradients by alpha, beta and the constant, or None if they are not wanted. sums: two complex vectors.
    """
    if row is not None:
        for factor in range(2):
            sums[factor] = Complex(k.vector(0.0), k.vector(0.0))
    for table in orbits:
        with _loop(k, table) as places:
            adjoints = [adjoint[place] for place in places]
            if row is not None:
                _gather(places, [psi[place] for place in places], adjoints, row, sums)
            for number, place in enumerate(places):
                back = None
                for factor, other in enumerate((adjoints[number], adjoints[number - 1])):
                    back = fma(_splat(factors[factor]).conjugate(), other, back)
                adjoint[place] = back
    if row is not None:
        for factor in range(2):
            row[factor] = _twice_total(sums[factor])


def _gather(
    places: Sequence[Number],
    states: Sequence[Complex],
    adjoints: Sequence[Complex],
    row: Buffer,
    sums: Buffer,
) -> None:
    """Add conj(psi) times the adjoint to the factors' sums; the adjoint's total is the constant's gradient."""
    totals = [sums[factor] for factor in range(2)]
    for number, (place, own) in enumerate(zip(places, adjoints, strict=True)):
        for factor, state in enumerate((states[number], states[number - 1])):
            total = totals[factor]
            totals[factor] = Complex(
                fma(state.real, own.real, fma(state.imag, own.imag, total.real)),
                fma(state.real, own.imag, fma(-state.imag, own.real, total.imag)),
            )
        row[place + 2] = _twice_total(own)
    for factor, total in enumerate(totals):
        sums[factor] = total


def _twice_total(vectors: Complex) -> Complex:
    """Twice the sums of the lanes, since a derivative is twice a product with the adjoint."""
    sums = (lane_sum(part).lane(0) for part in (vectors.real, vectors.imag))
    return Complex(*(total + total for total in sums))


def _splat(scalar: Complex) -> Complex:
    return Complex(scalar.real.splat(), scalar.imag.splat())


def orbits_of(partners: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """The pairs of amplitudes that the reversal exchanges, and the single ones that it leaves."""
    pairs = [(p, q) for p, q in enumerate(partners) if p < q]
    return [[*pairs], [(p,) for p, q in enumerate(partners) if p == q]]


@contextmanager
def _loop(k: FunctionCode, table: Buffer) -> Iterator[Sequence[Number]]:
    count, size = table.shape
    with k.each(count) as orbit:
        yield [table[orbit, number] for number in range(int(size))]  # type: ignore[arg-type]
