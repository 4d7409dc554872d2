"""Moves states between complex rows in memory and a tile's vectors.

A row is one sample's amplitudes, real and imaginary parts in turn; a tile holds the same numbers with the samples in
the lanes. The two differ in the order of an address's bits, so a block of vectors changes its order by exchanging
bits of a vector's number with bits of a lane's, each by shuffles of two vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from ketscale.engines.compiled.language import (
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


class Bit(NamedTuple):
    """One bit of a float's address: bit `number` of the sample or of the basis index, or which part it is."""

    of: str
    number: int = 0


PART = Bit("part")


@dataclass
class Rows:
    """The rows of a tile's samples.

    rows: (rows of the batch, floats). first, present: the index of the tile's first sample, and how many it has.
    size: basis states. lane_bits: of a basis index, that are in a vector's lanes; known as the code is written if `blocked`,
    that is, if many amplitudes are moved at a time. real: the tile has no imaginary parts. places: of the amplitudes if they
    are not in order.
    """

    k: FunctionCode
    rows: Buffer
    first: Number
    present: Number
    size: Operand
    lane_bits: Operand
    blocked: bool
    real: bool = False
    places: Places | None = None

    def __post_init__(self) -> None:
        if not self.blocked:
            return
        assert isinstance(self.lane_bits, int)
        lanes, low = self.k.lanes.bit_length() - 1, self.lane_bits
        amplitudes = max(lanes - 1, low)  # bits of a block's indices
        self._row_lanes = [PART, *(Bit("index", i) for i in range(lanes - 1))]
        self._tile_lanes = [Bit("index", i) for i in range(low)]
        self._tile_lanes += [Bit("sample", i) for i in range(lanes - low)]
        self._row_vectors = [Bit("index", i) for i in range(lanes - 1, amplitudes)]
        self._row_vectors += [Bit("sample", i) for i in range(lanes - low)]
        self._tile_vectors = [PART, *(Bit("index", i) for i in range(low, amplitudes))]
        self._amplitudes = 1 << amplitudes

    def read(self, tile: Buffer, scale: float) -> None:
        """Fill a tile with the rows times `scale`, without their powers of i; lanes without a sample get 0."""
        if self.blocked:
            self._read_blocks(tile, scale)
        else:
            self._read_singly(tile, scale)

    def _read_blocks(self, tile: Buffer, scale: float) -> None:
        with self.k.loop(self.size // self._amplitudes) as block:
            base = block * self._amplitudes
            vectors = []
            for number in range(1 << len(self._row_vectors)):
                bits = _values(number, self._row_vectors)
                vector = self._chunk(base, bits)[0]
                vectors.append(select(self.k.integer(bits["sample"]) < self.present, vector, 0.0))
            vectors, places = arrange(vectors, self._row_vectors, self._row_lanes, self._tile_lanes)
            for real, imag, index in _pairs(places):
                state = base + index
                turned = self._turned(state, Complex(vectors[real], vectors[imag]), scale, undo=True)
                tile[self._vector(state)] = turned.real if self.real else turned

    def write(self, tile: Buffer, scale: float) -> None:
        """Write a tile times `scale` to the rows, with their powers of i."""
        if self.blocked:
            self._write_blocks(tile, scale)
        else:
            self._write_singly(tile, scale)

    def _write_blocks(self, tile: Buffer, scale: float) -> None:
        with self.k.loop(self.size // self._amplitudes) as block:
            base = block * self._amplitudes
            vectors = {}
            places = [_values(number, self._tile_vectors) for number in range(1 << len(self._tile_vectors))]
            for real, imag, index in _pairs(places):
                state = base + index
                found = tile[self._vector(state)]
                amplitude = Complex(found, self.k.vector(0.0)) if self.real else found
                turned = self._turned(state, amplitude, scale, undo=False)
                vectors[real], vectors[imag] = turned.real, turned.imag
            ordered = [vectors[number] for number in range(len(vectors))]
            ordered, chunks = arrange(ordered, self._tile_vectors, self._tile_lanes, self._row_lanes)
            # Lanes without a sample go to the last sample's row, which is written after them.
            for number in sorted(range(len(ordered)), key=lambda n: -chunks[n]["sample"]):
                self._chunk(base, chunks[number])[0] = ordered[number]

    def _chunk(self, base: Number, bits: dict[str, int]) -> Buffer:
        """A vector of a row from amplitude `base` on; lanes without a sample get the last sample's."""
        sample = minimum(bits["sample"], self.present - 1)
        row: Buffer = self.rows[self.first + sample]
        return row.part(((base + bits["index"]) << 1,), 1, element="vector")

    # --- the tile ---

    def _source(self, state: Number) -> Number:
        """The index in the tile of a true basis state."""
        return state if self.places is None else self.places.sources[state]

    def _vector(self, state: Number) -> Number:
        """The vector (or pair) with the amplitude of a true basis state."""
        return self._source(state) >> self.lane_bits

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

    # --- few amplitudes, or amplitudes in another order within a vector ---

    def _read_singly(self, tile: Buffer, scale: float) -> None:
        parts = 1 if self.real else 2
        tile.part((), 1, element="aligned").zero(product((self.size, parts)) >> self.lane_bits)
        with self._single(tile, parts) as (state, row, vector, lane):
            turned = self._turned(state, row[state], scale, undo=True)
            for part, value in zip(range(parts), (turned.real, turned.imag), strict=False):
                vector[part, lane] = value

    def _write_singly(self, tile: Buffer, scale: float) -> None:
        parts = 1 if self.real else 2
        with self._single(tile, parts) as (state, row, vector, lane):
            real = vector[0, lane]
            imag = vector[1, lane] if parts == 2 else self.k.zero_of(self.k.real)
            row[state] = self._turned(state, Complex(real, imag), scale, undo=False)

    @contextmanager
    def _single(self, tile: Buffer, parts: int) -> Iterator[tuple[Number, Buffer, Buffer, Number]]:
        """Loops over samples and amplitudes: a true basis state, its row, and the vectors and lane of its parts."""
        k, bits = self.k, self.lane_bits
        floats = tile.part((), 1, parts, k.lanes, element="real")
        with k.loop(self.present) as sample, k.loop(self.size) as state:
            row = self.rows.part((self.first + sample, 0), 1, element="complex")
            lane = (sample << bits) + (self._source(state) & ((k.integer(1) << bits) - 1))
            yield state, row, floats[self._vector(state)], lane


def arrange(
    vectors: Sequence[Number], numbers: Sequence[Bit], lanes: Sequence[Bit], wanted: Sequence[Bit]
) -> tuple[list[Number], list[dict[str, int]]]:
    """The same floats in vectors whose lanes' bits are `wanted`, lowest first, and what each vector now holds.

    numbers, lanes: the meanings of the bits of a vector's number and of a lane's number, lowest first.
    """
    vectors, numbers, lanes = list(vectors), list(numbers), list(lanes)
    for lane_bit, leaving in enumerate(lanes):
        if leaving not in wanted:
            bit = next(i for i, label in enumerate(numbers) if label in wanted)
            vectors = _exchanged(vectors, bit, lane_bit)
            numbers[bit], lanes[lane_bit] = lanes[lane_bit], numbers[bit]
    sources = [
        sum((lane >> wanted.index(label) & 1) << i for i, label in enumerate(lanes))
        for lane in range(1 << len(lanes))
    ]
    vectors = [vector.shuffled(sources) for vector in vectors]
    return vectors, [_values(number, numbers) for number in range(len(vectors))]


def _exchanged(vectors: list[Number], bit: int, lane_bit: int) -> list[Number]:
    """Exchange a bit of the vectors' numbers with one of the lanes'."""
    out, distance, lanes = list(vectors), 1 << lane_bit, range(vectors[0].lanes)
    low = [len(lanes) + (lane ^ distance) if lane & distance else lane for lane in lanes]
    high = [len(lanes) + lane if lane & distance else lane ^ distance for lane in lanes]
    for number, vector in enumerate(vectors):
        if not number >> bit & 1:
            partner = vectors[number | 1 << bit]
            out[number] = vector.shuffled(low, partner)
            out[number | 1 << bit] = vector.shuffled(high, partner)
    return out


def _values(number: int, labels: Sequence[Bit]) -> dict[str, int]:
    """The sample, index and part that a number with bits of these meanings encodes."""
    out = {"sample": 0, "index": 0, "part": 0}
    for i, label in enumerate(labels):
        out[label.of] |= (number >> i & 1) << label.number
    return out


def _pairs(places: Sequence[dict[str, int]]) -> list[tuple[int, int, int]]:
    """(number of the real vector, of the imaginary one, their basis index in the block)."""
    at = {(place["index"], place["part"]): number for number, place in enumerate(places)}
    return [(number, at[index, 1], index) for (index, part), number in at.items() if part == 0]
