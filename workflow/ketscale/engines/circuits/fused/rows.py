"""Moves states between complex rows in memory and a tile's vectors.

A row is one sample's amplitudes, real and imaginary parts in turn; a tile holds the same numbers with the samples in
the lanes. The two differ in the order of an address's bits, so a block of vectors changes its order by exchanging
bits of a vector's number with bits of a lane's, each by shuffles of two vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ketscale.engines.circuits.fused.plan import SweepPlan
from ketscale.engines.compiled.vector import I8, I64, Value, Writer


class Places(NamedTuple):
    """Addresses of tables by true basis state: its number in the tile, and the power of i that was divided out."""

    sources: Value
    powers: Value


class Bit(NamedTuple):
    """One bit of a float's address: bit `number` of the sample or of the basis index, or which part it is."""

    of: str
    number: int = 0


PART = Bit("part")


@dataclass
class Rows:
    """The rows of a tile's samples.

    start: address of the row of the batch's first sample. stride: floats between rows.
    first, present: the index of the tile's first sample, and the number of its samples.
    places: the places of the amplitudes if they are not in order.
    """

    w: Writer
    plan: SweepPlan
    start: Value
    stride: Value
    first: Value
    present: Value
    places: Places | None = None

    def __post_init__(self) -> None:
        lanes = self.w.lanes.bit_length() - 1
        low, plan = self.plan.lane_bits, self.plan
        amplitudes = max(lanes - 1, low)  # of a block's indices, in bits
        self._row_lanes = [PART, *(Bit("index", i) for i in range(lanes - 1))]
        self._tile_lanes = [Bit("index", i) for i in range(low)]
        self._tile_lanes += [Bit("sample", i) for i in range(lanes - low)]
        self._row_vectors = [Bit("index", i) for i in range(lanes - 1, amplitudes)]
        self._row_vectors += [Bit("sample", i) for i in range(lanes - low)]
        self._tile_vectors = [PART, *(Bit("index", i) for i in range(low, amplitudes))]
        self._amplitudes = 1 << amplitudes
        # Amplitudes in another order can be moved in blocks only if each has a vector of its own.
        self._blocked = amplitudes <= plan.program.qubits and not (self.places and low)
        self._powers = self.places is not None and any(plan.program.powers or ())

    def read(self, buffer: Value, scale: float) -> None:
        """Fill a tile with the rows times `scale`, without their powers of i; lanes without a sample get 0."""
        if self._blocked:
            self._read_blocks(buffer, scale)
        else:
            self._read_singly(buffer, scale)

    def _read_blocks(self, buffer: Value, scale: float) -> None:
        w = self.w
        last = w.b.sub(self.present, w.integer(1))
        with w.loop((1 << self.plan.program.qubits) // self._amplitudes) as block:
            base = w.b.mul(block, w.integer(self._amplitudes))
            vectors = []
            for number in range(1 << len(self._row_vectors)):
                bits = _values(number, self._row_vectors)
                exists = w.b.icmp_unsigned("<", w.integer(bits["sample"]), self.present)
                vector = w.load(self._chunk(base, bits, last), w.bytes)
                vectors.append(w.b.select(exists, vector, w.constant(0.0)))
            vectors, places = arrange(w, vectors, self._row_vectors, self._row_lanes, self._tile_lanes)
            for real, imaginary, index in _pairs(places):
                parts = vectors[real], vectors[imaginary]
                state = w.b.add(base, w.integer(index))
                self._put(buffer, state, self._turned(state, parts, scale, undo=True))

    def write(self, buffer: Value, scale: float) -> None:
        """Write a tile times `scale` to the rows, with their powers of i."""
        if self._blocked:
            self._write_blocks(buffer, scale)
        else:
            self._write_singly(buffer, scale)

    def _write_blocks(self, buffer: Value, scale: float) -> None:
        w = self.w
        last = w.b.sub(self.present, w.integer(1))
        with w.loop((1 << self.plan.program.qubits) // self._amplitudes) as block:
            base = w.b.mul(block, w.integer(self._amplitudes))
            vectors: list[Value] = [None] * (1 << len(self._tile_vectors))
            places = [_values(number, self._tile_vectors) for number in range(len(vectors))]
            for real, imaginary, index in _pairs(places):
                state = w.b.add(base, w.integer(index))
                turned = self._turned(state, self._get(buffer, state), scale, undo=False)
                vectors[real], vectors[imaginary] = turned
            vectors, chunks = arrange(w, vectors, self._tile_vectors, self._tile_lanes, self._row_lanes)
            # Lanes without a sample go to the last sample's row, which is written after them.
            for number in sorted(range(len(vectors)), key=lambda n: -chunks[n]["sample"]):
                w.store(vectors[number], self._chunk(base, chunks[number], last), w.bytes)

    def _chunk(self, base: Value, bits: dict[str, int], last: Value) -> Value:
        """The address of a vector of a row from amplitude `base` on; lanes without a sample get the last sample's."""
        w = self.w
        sample = w.integer(bits["sample"])
        sample = w.b.select(w.b.icmp_unsigned("<", sample, last), sample, last)
        row = w.element(self.start, w.b.mul(w.b.add(self.first, sample), self.stride))
        return w.element(row, w.b.shl(w.b.add(base, w.integer(bits["index"])), w.integer(1)))

    # --- the tile ---

    def _address(self, buffer: Value, state: Value) -> Value:
        """The address of the vector (or pair) with the amplitude of a true basis state."""
        w = self.w
        v = w.b.lshr(self._source(state), w.integer(self.plan.lane_bits))
        return w.at(buffer, v if self.plan.real else w.b.shl(v, w.integer(1)))

    def _source(self, state: Value) -> Value:
        if self.places is None:
            return state
        return self.w.b.load(self.w.element(self.places.sources, state, I64), typ=I64)

    def _get(self, buffer: Value, state: Value) -> tuple[Value, Value]:
        w, address = self.w, self._address(buffer, state)
        return w.load(address), w.constant(0.0) if self.plan.real else w.load(w.at(address, 1))

    def _put(self, buffer: Value, state: Value, parts: tuple[Value, Value]) -> None:
        w, address = self.w, self._address(buffer, state)
        w.store(parts[0], address)
        if not self.plan.real:
            w.store(parts[1], w.at(address, 1))

    def _turned(
        self, state: Value, parts: tuple[Value, Value], scale: float, undo: bool
    ) -> tuple[Value, Value]:
        """Amplitudes times `scale` and the power of i of their basis state, or its inverse."""
        w, (real, imaginary) = self.w, parts
        scalar = real.type == w.real
        factor = ir.Constant(w.real, scale) if scalar else w.constant(scale)
        if scale != 1:
            real, imaginary = w.b.fmul(real, factor), w.b.fmul(imaginary, factor)
        if not self._powers or self.places is None:
            return real, imaginary
        power = w.b.zext(w.b.load(w.element(self.places.powers, state, I8), typ=I8), I64)
        table = w.table("powers_of_i", w.real, [1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -1.0])
        entry = w.b.shl(power, w.integer(1))
        cosine, sine = (w.load_real(w.element(table, w.b.add(entry, w.integer(part)))) for part in (0, 1))
        if undo:
            sine = w.b.fneg(sine)
        if not scalar:
            cosine, sine = w.splat(cosine), w.splat(sine)
        return (
            w.b.fsub(w.b.fmul(cosine, real), w.b.fmul(sine, imaginary)),
            w.b.fadd(w.b.fmul(cosine, imaginary), w.b.fmul(sine, real)),
        )

    # --- few amplitudes, or amplitudes in another order within a vector ---

    def _read_singly(self, buffer: Value, scale: float) -> None:
        w = self.w
        with w.loop(self.plan.state_vectors) as v:
            w.store(w.constant(0.0), w.at(buffer, v))
        with w.loop(self.present) as sample, w.loop(1 << self.plan.program.qubits) as state:
            places = self._single(sample, state)
            real, imaginary = self._turned(
                state, (w.load_real(places[0]), w.load_real(places[1])), scale, True
            )
            address, lane = self._address(buffer, state), self._lane(sample, state)
            w.b.store(real, w.element(address, lane))
            if not self.plan.real:
                w.b.store(imaginary, w.element(w.at(address, 1), lane))

    def _write_singly(self, buffer: Value, scale: float) -> None:
        w = self.w
        with w.loop(self.present) as sample, w.loop(1 << self.plan.program.qubits) as state:
            address, lane = self._address(buffer, state), self._lane(sample, state)
            real, imaginary = w.load_real(w.element(address, lane)), ir.Constant(w.real, 0.0)
            if not self.plan.real:
                imaginary = w.load_real(w.element(w.at(address, 1), lane))
            turned = self._turned(state, (real, imaginary), scale, undo=False)
            for part, place in zip(turned, self._single(sample, state), strict=True):
                w.b.store(part, place)

    def _single(self, sample: Value, state: Value) -> tuple[Value, Value]:
        """Addresses of one amplitude's parts in its row."""
        w = self.w
        row = w.element(self.start, w.b.mul(w.b.add(self.first, sample), self.stride))
        real = w.element(row, w.b.shl(state, w.integer(1)))
        return real, w.element(real, 1)

    def _lane(self, sample: Value, state: Value) -> Value:
        w, bits = self.w, self.plan.lane_bits
        low = w.b.and_(self._source(state), w.integer((1 << bits) - 1))
        return w.b.add(w.b.shl(sample, w.integer(bits)), low)


def arrange(
    w: Writer, vectors: Sequence[Value], numbers: Sequence[Bit], lanes: Sequence[Bit], wanted: Sequence[Bit]
) -> tuple[list[Value], list[dict[str, int]]]:
    """The same floats in vectors whose lanes' bits are `wanted`, lowest first, and what each vector now holds.

    numbers, lanes: the meanings of the bits of a vector's number and of a lane's number, lowest first.
    """
    vectors, numbers, lanes = list(vectors), list(numbers), list(lanes)
    for lane_bit, leaving in enumerate(lanes):
        if leaving not in wanted:
            bit = next(i for i, label in enumerate(numbers) if label in wanted)
            vectors = _exchanged(w, vectors, bit, lane_bit)
            numbers[bit], lanes[lane_bit] = lanes[lane_bit], numbers[bit]
    sources = [
        sum((lane >> wanted.index(label) & 1) << i for i, label in enumerate(lanes))
        for lane in range(1 << len(lanes))
    ]
    vectors = [w.shuffle(vector, sources) for vector in vectors]
    return vectors, [_values(number, numbers) for number in range(len(vectors))]


def _exchanged(w: Writer, vectors: list[Value], bit: int, lane_bit: int) -> list[Value]:
    """Exchange a bit of the vectors' numbers with one of the lanes'."""
    out, distance = list(vectors), 1 << lane_bit
    high = range(w.lanes, 2 * w.lanes)
    for number, vector in enumerate(vectors):
        if not number >> bit & 1:
            partner = vectors[number | 1 << bit]
            low = [high[lane ^ distance] if lane & distance else lane for lane in range(w.lanes)]
            rest = [high[lane] if lane & distance else lane ^ distance for lane in range(w.lanes)]
            out[number] = w.shuffle(vector, low, partner)
            out[number | 1 << bit] = w.shuffle(vector, rest, partner)
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
