"""phi = alpha psi + beta (psi with its wires reversed) + constant, tile by tile, and its backward pass.

The amplitudes are processed by orbits of the reversal, pairs and single ones, so psi and the adjoint need no second
copy. The arguments are one array of floats: alpha, beta, then the constant, all of them complex numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ketscale.engines.circuits.fused.plan import SweepPlan
from ketscale.engines.compiled.vector import I64, Value, Writer

Pair = tuple[Value, Value]


class Mixing:
    """Writes the superposition of a tile's states for a plan with `partners`.

    mix: address of alpha, beta and the constant, which is in the order of the tile's amplitudes.
    """

    def __init__(self, w: Writer, plan: SweepPlan, mix: Value) -> None:
        self.w, self.plan, self.mix = w, plan, mix

    def apply(self, psi: Value, phi: Value) -> None:
        """Fill `phi` from `psi`, two different buffers."""
        for orbit in self._orbits():
            with orbit as places:
                states = [self._load(psi, place) for place in places]
                for k, place in enumerate(places):
                    mixed = self._constant(place)
                    for number, state in enumerate((states[k], states[k - 1])):
                        mixed = self._add_product(mixed, self._coefficient(number), state)
                    self._store(mixed, phi, place)

    def undo(self, psi: Value, adjoint: Value, out: Value | None, sums: Value) -> None:
        """Turn phi's adjoint into psi's.

        out: address for the row (alpha, beta, constant) of the tile's gradients, or None if it is not wanted.
        sums: four vectors of scratch.
        """
        w = self.w
        if out is not None:
            for i in range(4):
                w.store(w.constant(0.0), w.at(sums, i))
        for orbit in self._orbits():
            with orbit as places:
                adjoints = [self._load(adjoint, place) for place in places]
                if out is not None:
                    states = [self._load(psi, place) for place in places]
                    self._gather(places, states, adjoints, out, sums)
                for k, place in enumerate(places):
                    back: tuple[Value | None, Value | None] = (None, None)
                    for number, other in enumerate((adjoints[k], adjoints[k - 1])):
                        back = self._add_product(back, self._coefficient(number), other, conjugate=True)
                    self._store(back, adjoint, place)
        if out is not None:
            for i in range(4):
                self._put_total(w.load(w.at(sums, i)), w.element(out, i))

    def _gather(
        self,
        places: Sequence[Value],
        states: Sequence[Pair],
        adjoints: Sequence[Pair],
        out: Value,
        sums: Value,
    ) -> None:
        """Add conj(psi) times the adjoint to the coefficients' sums; the adjoint's total is the constant's gradient."""
        w = self.w
        totals: list[Value] = [w.load(w.at(sums, i)) for i in range(4)]
        for k, (place, (re, im)) in enumerate(zip(places, adjoints, strict=True)):
            for number, (s_re, s_im) in enumerate((states[k], states[k - 1])):
                at = 2 * number
                totals[at] = w.fma(s_re, re, w.fma(s_im, im, totals[at]))
                totals[at + 1] = w.fma(s_re, im, w.fma(s_im, re, totals[at + 1], negate=True))
            first = w.b.add(w.b.shl(place, w.integer(1)), w.integer(4))
            self._put_total(re, w.element(out, first))
            self._put_total(im, w.element(out, w.b.add(first, w.integer(1))))
        for i, total in enumerate(totals):
            w.store(total, w.at(sums, i))

    def _put_total(self, vector: Value, address: Value) -> None:
        """Store twice the sum of a vector's lanes, since a derivative is twice a product with the adjoint."""
        w = self.w
        total = w.b.extract_element(w.sum_lanes(vector, w.lanes), w.integer(0))
        w.b.store(w.b.fadd(total, total), address)

    # --- orbits and numbers ---

    def _orbits(self) -> Iterator[AbstractContextManager[Sequence[Value]]]:
        """One loop over the pairs of amplitudes that the reversal exchanges, one over those that it leaves."""
        partners = self.plan.partners or ()
        pairs = [(p, q) for p, q in enumerate(partners) if p < q]
        fixed = [(p,) for p, q in enumerate(partners) if p == q]
        yield from (self._loop(orbits) for orbits in (pairs, fixed) if orbits)

    @contextmanager
    def _loop(self, orbits: Sequence[tuple[int, ...]]) -> Iterator[Sequence[Value]]:
        w, size = self.w, len(orbits[0])
        table = w.table(f"orbits{size}", I64, [place for orbit in orbits for place in orbit])
        with w.loop(len(orbits)) as i:
            first = w.b.mul(i, w.integer(size))
            yield [
                w.b.load(w.element(table, w.b.add(first, w.integer(k)), I64), typ=I64) for k in range(size)
            ]

    def _coefficient(self, number: int) -> Pair:
        """alpha or beta in every lane."""
        w = self.w
        return (
            w.load_splat(w.element(self.mix, 2 * number)),
            w.load_splat(w.element(self.mix, 2 * number + 1)),
        )

    def _constant(self, place: Value) -> Pair:
        w = self.w
        first = w.b.add(w.b.shl(place, w.integer(1)), w.integer(4))
        return (
            w.load_splat(w.element(self.mix, first)),
            w.load_splat(w.element(self.mix, w.b.add(first, w.integer(1)))),
        )

    def _add_product(
        self, sum_: tuple[Value | None, Value | None], factor: Pair, state: Pair, conjugate: bool = False
    ) -> Pair:
        """sum + factor * state, or sum + conj(factor) * state."""
        w = self.w
        (f_re, f_im), (re, im) = factor, state
        return (
            w.fma(f_im, im, w.fma(f_re, re, sum_[0]), negate=not conjugate),
            w.fma(f_im, re, w.fma(f_re, im, sum_[1]), negate=conjugate),
        )

    def _load(self, buffer: Value, place: Value) -> Pair:
        w = self.w
        address = w.at(buffer, w.b.shl(place, w.integer(1)))
        return w.load(address), w.load(w.at(address, 1))

    def _store(self, pair: tuple[Value | None, Value | None], buffer: Value, place: Value) -> None:
        w = self.w
        address = w.at(buffer, w.b.shl(place, w.integer(1)))
        w.store(pair[0], address)
        w.store(pair[1], w.at(address, 1))
