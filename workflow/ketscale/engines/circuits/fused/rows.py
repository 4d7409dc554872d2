"""Moves states between complex rows in memory and a tile's vectors.

A row is one sample's amplitudes, real and imaginary parts in turn; a tile holds the same numbers with the samples in
the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from ketscale.engines.compiled.language import Buffer, Complex, FunctionCode, Number, Operand, product


class Places(NamedTuple):
    """Tables by true basis state: its number in the tile, and the power of i that was divided out."""

    sources: Buffer
    powers: Buffer


@dataclass
class Rows:
    """The rows of a tile's samples.

    rows: (rows of the batch, floats). first, present: the index of the tile's first sample, and how many it has.
    size: basis states. lane_bits: of a basis index, that are in a vector's lanes. real: the tile has no imaginary parts.
    places: of the amplitudes if they are not in order.
    """

    k: FunctionCode
    rows: Buffer
    first: Number
    present: Number
    size: Operand
    lane_bits: Number
    real: bool
    places: Places | None

    def read(self, tile: Buffer, scale: float) -> None:
        """Fill a tile with the rows times `scale`, without their powers of i; lanes without a sample get 0."""
        tile.part((), 1, element="aligned").zero(product((self.size, 2 - self.real)) >> self.lane_bits)
        with self._each(tile) as (state, row, vector, lane):
            amplitude = self._phased(state, row[state], scale, undo=True)
            for part, value in enumerate([amplitude.real] if self.real else [amplitude.real, amplitude.imag]):
                vector[part, lane] = value

    def write(self, tile: Buffer, scale: float) -> None:
        """Write a tile times `scale` to the rows, with their powers of i."""
        with self._each(tile) as (state, row, vector, lane):
            imag = self.k.zero_of(self.k.real) if self.real else vector[1, lane]
            row[state] = self._phased(state, Complex(vector[0, lane], imag), scale, undo=False)

    def _phased(self, state: Number, amplitude: Complex, scale: float, undo: bool) -> Complex:
        """An amplitude times `scale` and the power of i of its basis state, or its inverse."""
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
    def _each(self, tile: Buffer) -> Iterator[tuple[Number, Buffer, Buffer, Number]]:
        """Loops over samples and amplitudes: a true basis state, its row, and the vectors and lane of its parts."""
        k, bits = self.k, self.lane_bits
        floats = tile.part((), 1, 2 - self.real, k.lanes, element="real")
        with k.loop(self.present) as sample, k.loop(self.size) as state:
            row = self.rows.part((self.first + sample, 0), 1, element="complex")
            source = state if self.places is None else self.places.sources[state]
            lane = (sample << bits) + (source & ((k.integer(1) << bits) - 1))
            yield state, row, floats[source >> bits], lane
