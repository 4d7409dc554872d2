"""Moves states between complex rows in memory and a tile's vectors.

A row is one sample's amplitudes, real and imaginary parts in turn; a tile holds the same numbers with the samples in
the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from ketscale.engines.compiled.language import (
    I64,
    Buffer,
    Complex,
    FunctionCode,
    Number,
    Operand,
    minimum,
    product,
    select,
)


class Places(NamedTuple):
    """Tables by true basis state: its number in the tile, and the power of i that was divided out."""

    sources: Buffer
    powers: Buffer


@dataclass
class Rows:
    """The rows of a tile's samples.

    rows: (rows of the batch, floats). first, present: the index of the tile's first sample, and how many it has.
    size: basis states. lane_bits: of a basis index, that are in a vector's lanes; None if there are none, so that each amplitude
    has a vector of its own. real: the tile has no imaginary parts. places: of the amplitudes if they are not in order.
    """

    k: FunctionCode
    rows: Buffer
    first: Number
    present: Number
    size: Operand
    lane_bits: Number | None
    real: bool = False
    places: Places | None = None

    def read(self, tile: Buffer, scale: float) -> None:
        """Fill a tile with the rows times `scale`, without their powers of i; lanes without a sample get 0."""
        k, parts = self.k, 1 if self.real else 2
        if self.lane_bits is None:
            rows, present = self._by_lane(), k.vector(range(k.lanes), I64) < self.present
            with k.loop(self.size) as state:
                whole = [row[state] for row in rows]
                while len(whole) > 1:
                    pairs = zip(whole[::2], whole[1::2], strict=True)
                    whole = [low.shuffled(range(2 * low.lanes), high) for low, high in pairs]
                halves = (whole[0].shuffled(range(part, 2 * k.lanes, 2)) for part in range(2))
                amplitude = Complex(*(select(present, half, 0.0) for half in halves))
                turned = self._turned(state, amplitude, scale, undo=True)
                tile[self._source(state)] = turned.real if self.real else turned
            return
        tile.part((), 1, element="aligned").zero(product((self.size, parts)) >> self.lane_bits)
        with self._single(tile, parts, self.lane_bits) as (state, row, vector, lane):
            turned = self._turned(state, row[state], scale, undo=True)
            for part, value in zip(range(parts), (turned.real, turned.imag), strict=False):
                vector[part, lane] = value

    def write(self, tile: Buffer, scale: float) -> None:
        """Write a tile times `scale` to the rows, with their powers of i."""
        k, parts = self.k, 1 if self.real else 2
        if self.lane_bits is None:
            rows = self._by_lane()
            with k.loop(self.size) as state:
                found = tile[self._source(state)]
                amplitude = Complex(found, k.vector(0.0)) if self.real else found
                turned = self._turned(state, amplitude, scale, undo=False)
                order = [number for lane in range(k.lanes) for number in (lane, k.lanes + lane)]
                whole = turned.real.shuffled(order, turned.imag)
                # Lanes without a sample go to the last sample's row, which is written after them.
                for number in reversed(range(k.lanes)):
                    rows[number][state] = whole.shuffled([2 * number, 2 * number + 1])
            return
        with self._single(tile, parts, self.lane_bits) as (state, row, vector, lane):
            real = vector[0, lane]
            imag = vector[1, lane] if parts == 2 else k.zero_of(k.real)
            row[state] = self._turned(state, Complex(real, imag), scale, undo=False)

    def _by_lane(self) -> list[Buffer]:
        """The row of each lane, by pairs of real and imaginary part; lanes without a sample have the last sample's."""
        numbers = (self.first + minimum(lane, self.present - 1) for lane in range(self.k.lanes))
        return [self.rows.part((number, 0), 1, element=self.k.few(2)) for number in numbers]

    def _source(self, state: Number) -> Number:
        """The index in the tile of a true basis state."""
        return state if self.places is None else self.places.sources[state]

    def _turned(self, state: Number, amplitude: Complex, scale: float, undo: bool) -> Complex:
        """Amplitudes times `scale` and the power of i of their basis state, or its inverse."""
        if scale != 1:
            amplitude = amplitude * scale
        if self.places is None:
            return amplitude
        table = self.k.table("powers_of_i", [1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -1.0]).part((), 4, 2)
        power = self.places.powers[state].widened()
        cosine, sine = table[power, 0], table[power, 1]
        sine = -sine if undo else sine
        real, imag = amplitude.real, amplitude.imag
        return Complex(cosine * real - sine * imag, cosine * imag + sine * real)

    @contextmanager
    def _single(
        self, tile: Buffer, parts: int, bits: Number
    ) -> Iterator[tuple[Number, Buffer, Buffer, Number]]:
        """Loops over samples and amplitudes: a true basis state, its row, and the vectors and lane of its parts."""
        k = self.k
        floats = tile.part((), 1, parts, k.lanes, element="real")
        with k.loop(self.present) as sample, k.loop(self.size) as state:
            row, source = self.rows.part((self.first + sample, 0), 1, element="complex"), self._source(state)
            lane = (sample << bits) + (source & ((k.integer(1) << bits) - 1))
            yield state, row, floats[source >> bits], lane
