"""The compiled code that applies gates to columns, forward and backward, for `cpu`.

Columns are in the lanes of vectors: a tile is a few vectors of columns, and its state is (d**n, vectors), complex. Code is
written for d alone. Where a gate acts is in a table of strides, so that one code serves all lattices of d levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    Code,
    Complex,
    Number,
    complex_vectors,
    complexes,
    fma,
    integers,
    lane_sums,
)
from ketscale.engines.pulses.plan import (
    HEAD,
    INNER,
    MIDDLE,
    MIDDLE_STRIDE,
    OUTER,
    OUTER_STRIDE,
    SITES,
    GatesPlan,
)

# tile_size: complex vectors of a tile's state. wanted: how many of the first numbers of the gates need a gradient.
# items: for each gate of the sequence, its row of the table, and where its matrix starts in `gates`; see `plan.table`.
ARGUMENTS = {
    "tiles count tile_size wanted": INTEGER,
    "items": integers("count", 2),
    "table": integers("places", "row"),
    "gates": complexes("numbers"),
    "states cotangents": complex_vectors("tiles", "tile_size"),
    "to_gates": complexes("tiles", "wanted"),
}

# The rows of larger gates are a loop instead of unrolled.
UNROLLED = 9

# Entries of a gate's gradient that are summed at once: they are two vectors each and have to stay in registers.
SUMMED = 9


def forward(k: Code, args: Arguments, plan: GatesPlan) -> None:
    """states <- those after all gates."""
    with k.tasks(args.tiles) as tile:
        state = args.states[tile]
        with k.loop(args.count) as number:
            _with_gate(k, args, plan, number, lambda gate: gate.apply(state))


def backward(k: Code, args: Arguments, plan: GatesPlan) -> None:
    """states, cotangents <- those before all gates; to_gates <- itself and the gradients by the gates."""
    with k.tasks(args.tiles) as tile:
        state, cotangent = args.states[tile], args.cotangents[tile]
        gradients = args.to_gates[tile]

        def undo(gate: _Gate) -> None:
            gate.apply(state, inverse=True)
            with k.when(gate.start < args.wanted):
                gate.differentiate(state, cotangent, gradients)
            gate.apply(cotangent, inverse=True)

        with k.loop(args.count, backwards=True) as number:
            _with_gate(k, args, plan, number, undo)


def _with_gate(
    k: Code, args: Arguments, plan: GatesPlan, number: Number, write: Callable[[_Gate], None]
) -> None:
    """Write what is done with a gate of the sequence, for one site and for two."""
    place, start = args.items[number, 0], args.items[number, 1]
    row, d = args.table[place], plan.levels
    k.either(
        row[SITES] == 2,
        lambda: write(_Gate(k, args, row, start, d * d)),
        lambda: write(_Gate(k, args, row, start, d)),
    )


class _Gate:
    """A gate of `size` rows, with its row of the table, and where its matrix starts in the buffer."""

    def __init__(self, k: Code, args: Arguments, row: Buffer, start: Number, size: int) -> None:
        self.k, self._row, self.start, self.size = k, row, start, size
        self._matrix = args.gates.part(start, size, size)

    def apply(self, state: Buffer, inverse: bool = False) -> None:
        """The gate, or its conjugate transpose, on a tile's state in place."""
        offsets = [self._offset(level) for level in range(self.size)]
        with self._blocks() as block:
            given = [state[block + offset] for offset in offsets]
            if self.size <= UNROLLED:
                for number, offset in enumerate(offsets):
                    state[block + offset] = self._row_times(number, given, inverse)
            else:
                with self.k.loop(self.size) as row:
                    state[block + self._offset(row)] = self._row_times(row, given, inverse)

    def differentiate(self, state: Buffer, cotangent: Buffer, gradients: Buffer) -> None:
        """Add the gradient, the sum over columns of cotangent times the state's conjugate, to that of the buffer.

        state: before the gate. cotangent: of the state after it.
        """
        k, (high, wide) = self.k, _summed(self.size)
        gradient = gradients.part(self.start, self.size, self.size, 2, element="real")
        with k.loop(self.size // high) as i, k.loop(self.size // wide) as j:
            rows, columns = [i * high + number for number in range(high)], [j * wide + n for n in range(wide)]
            sums = self._outer(rows, columns, state, cotangent)
            places = [(row, column, part) for row in rows for column in columns for part in (0, 1)]
            for first in range(0, len(sums), k.lanes):
                vectors = sums[first : first + k.lanes]
                totals = lane_sums(vectors + [k.vector(0.0)] * (k.lanes - len(vectors)))
                for lane, place in enumerate(places[first : first + k.lanes]):
                    gradient[place] = gradient[place] + totals.lane(lane)

    def _outer(
        self, rows: list[Number], columns: list[Number], state: Buffer, cotangent: Buffer
    ) -> list[Number]:
        """The sums of cotangent times conjugate state over the blocks, for these rows and columns, by part."""
        k = self.k
        below, beside = ([self._offset(level) for level in levels] for levels in (rows, columns))
        zero = Complex(k.vector(0.0), k.vector(0.0))
        sums = k.variable([zero] * (len(rows) * len(columns)))
        with self._blocks() as block:
            before = [state[block + offset].conjugate() for offset in beside]
            after = (cotangent[block + offset] for offset in below)
            pairs = ((ours, each) for each in after for ours in before)
            sums.value = [fma(*pair, total) for pair, total in zip(pairs, sums.value, strict=True)]
        return [part for total in sums.value for part in (total.real, total.imag)]

    def _offset(self, level: Number | int) -> Number:
        """How far the amplitudes of a level of the gate's sites are from those of level 0, in complex vectors."""
        offset: Number = self._row[level + HEAD]
        return offset

    @contextmanager
    def _blocks(self) -> Iterator[Number]:
        """Loop over the levels of the other sites, and the vectors of columns; yields where their level 0 is."""
        k, row = self.k, self._row
        with k.loop(row[OUTER]) as i:
            outer = i * row[OUTER_STRIDE]
            with k.loop(row[MIDDLE]) as j:
                middle = outer + j * row[MIDDLE_STRIDE]
                with k.loop(row[INNER]) as number:
                    yield middle + number

    def _row_times(self, row: Number | int, given: list[Complex], inverse: bool) -> Complex:
        """The product of a row of the gate, or of its conjugate transpose, and a vector."""
        total: Complex | None = None
        for column, each in enumerate(given):
            entry = self._matrix[(column, row) if inverse else (row, column)]
            entry = Complex(entry.real.splat(), entry.imag.splat())
            total = fma(entry.conjugate() if inverse else entry, each, total)
        assert total is not None
        return total


def _summed(size: int) -> tuple[int, int]:
    """How many rows and columns of a gradient are summed at once; both divide its size.

    As many entries as fit, and of these shapes the nearest to a square, which loads least.
    """
    divisors = [k for k in range(1, size + 1) if size % k == 0]
    fitting = [(rows, columns) for rows in divisors for columns in divisors if rows * columns <= SUMMED]
    return max(fitting, key=lambda each: (each[0] * each[1], -abs(each[0] - each[1])))
