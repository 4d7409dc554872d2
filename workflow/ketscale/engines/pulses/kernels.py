"""Writes the machine code that applies gates to columns, forward and backward, for `cpu`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from llvmlite import ir

from ketscale.engines.compiled.vector import I64, Value, Writer
from ketscale.engines.pulses.plan import (
    ARGUMENTS,
    HEAD,
    INNER,
    MIDDLE,
    MIDDLE_STRIDE,
    OUTER,
    OUTER_STRIDE,
    SITES,
    Plan,
)

Complex = tuple[Value, Value]

# The rows of larger gates are a loop instead of unrolled.
UNROLLED = 9

# Entries of a gate's gradient that are summed at once: they are two vectors each and have to stay in registers.
SUMMED = 9


def module(plan: Plan) -> ir.Module:
    """The functions `forward` and `backward`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_pulses")
    _Function(written, "forward", plan).forward()
    _Function(written, "backward", plan).backward()
    return written


class _Function:
    """Writes one of the functions; every thread runs it, and takes tiles until none is left."""

    def __init__(self, module: ir.Module, name: str, plan: Plan) -> None:
        self.plan = plan
        self.w = Writer(module, name, plan.lanes, double=True)

    def _argument(self, name: str, pointer: bool = False) -> Value:
        return self.w.argument(ARGUMENTS.index(name), pointer)

    def _of_tile(self, name: str, tile: Value, size: str) -> Value:
        """The address of a tile's part of an array."""
        return self.w.element(self._argument(name, True), self.w.b.mul(tile, self._argument(size)))

    def forward(self) -> None:
        """All gates on the states, in place."""
        with self._tiles() as tile:
            state = self._of_tile("states", tile, "tile_floats")
            with self.w.loop(self._argument("count")) as number:
                self._with_gate(number, lambda gate: gate.apply(state))

    def backward(self) -> None:
        """All gates' inverses on states and cotangents, in place, and the gates' gradients."""
        w = self.w
        with self._tiles() as tile:
            state, cotangent = (self._of_tile(name, tile, "tile_floats") for name in ("states", "cotangents"))
            wanted = self._argument("wanted")
            floats = w.b.mul(w.b.mul(tile, wanted), w.integer(2))
            gradients = w.element(self._argument("to_gates", True), floats)

            def undo(gate: _Gate) -> None:
                gate.apply(state, inverse=True)
                with w.b.if_then(w.b.icmp_unsigned("<", gate.start, wanted)):
                    gate.differentiate(state, cotangent, gradients)
                gate.apply(cotangent, inverse=True)

            count = self._argument("count")
            with w.loop(count) as done:
                self._with_gate(w.b.sub(w.b.sub(count, w.integer(1)), done), undo)

    def _tiles(self) -> AbstractContextManager[Value]:
        counter = self.w.argument_address(ARGUMENTS.index("next_tile"))
        return self.w.taken(counter, self._argument("tiles"))

    def _with_gate(self, number: Value, write: Callable[[_Gate], None]) -> None:
        """Write what is done with a gate of the sequence, for one site and for two."""
        w, b, d = self.w, self.w.b, self.plan.levels
        item = w.element(self._argument("items", True), b.mul(number, w.integer(2)), I64)
        place, start = b.load(item, typ=I64), b.load(w.element(item, 1, I64), typ=I64)
        row = w.element(self._argument("table", True), b.mul(place, w.integer(self.plan.row)), I64)
        matrix = w.element(self._argument("gates", True), b.mul(start, w.integer(2)))
        two = b.icmp_unsigned("==", b.load(w.element(row, SITES, I64), typ=I64), w.integer(2))
        with b.if_else(two) as (then, otherwise):
            with then:
                write(_Gate(w, d * d, row, matrix, start))
            with otherwise:
                write(_Gate(w, d, row, matrix, start))


class _Gate:
    """Writes what is done with a gate of `size` rows, whose row of the table, matrix and start in the buffer are given."""

    def __init__(self, w: Writer, size: int, row: Value, matrix: Value, start: Value) -> None:
        self.w, self.size, self.matrix, self.start = w, size, matrix, start
        self._row = row

    def _entry(self, number: Value | int) -> Value:
        return self.w.b.load(self.w.element(self._row, number, I64), typ=I64)

    def _offset(self, level: Value | int) -> Value:
        """How far the amplitudes of a level of the gate's sites are from those of level 0, in complex vectors."""
        if isinstance(level, int):
            return self._entry(HEAD + level)
        return self._entry(self.w.b.add(level, self.w.integer(HEAD)))

    @contextmanager
    def _blocks(self) -> Iterator[Value]:
        """Loop over the levels of the other sites, and the vectors of columns; yields where their level 0 is."""
        w, b = self.w, self.w.b
        with w.loop(self._entry(OUTER)) as i:
            outer = b.mul(i, self._entry(OUTER_STRIDE))
            with w.loop(self._entry(MIDDLE)) as j:
                middle = b.add(outer, b.mul(j, self._entry(MIDDLE_STRIDE)))
                with w.loop(self._entry(INNER)) as k:
                    yield b.add(middle, k)

    def _at(self, state: Value, place: Value) -> Value:
        return self.w.at(state, self.w.b.shl(place, self.w.integer(1)))

    def _load(self, state: Value, place: Value) -> Complex:
        address = self._at(state, place)
        return self.w.load(address), self.w.load(self.w.at(address, 1))

    def apply(self, state: Value, inverse: bool = False) -> None:
        """The gate, or its conjugate transpose, on a tile's state in place."""
        w, b = self.w, self.w.b
        offsets = [self._offset(level) for level in range(self.size)]
        with self._blocks() as block:
            given = [self._load(state, b.add(block, offset)) for offset in offsets]

            def write(row: Value, offset: Value) -> None:
                address = self._at(state, b.add(block, offset))
                for number, vector in enumerate(self._row_times(row, given, inverse)):
                    w.store(vector, w.at(address, number))

            if self.size <= UNROLLED:
                for row, offset in enumerate(offsets):
                    write(w.integer(row), offset)
            else:
                with w.loop(self.size) as row:
                    write(row, self._offset(row))

    def _row_times(self, row: Value, given: list[Complex], inverse: bool) -> Complex:
        """The product of a row of the gate, or of its conjugate transpose, and a vector."""
        w, b, size = self.w, self.w.b, self.w.integer(self.size)
        real = imaginary = None
        for number, (x, y) in enumerate(given):
            column = w.integer(number)
            index = b.add(b.mul(column, size), row) if inverse else b.add(b.mul(row, size), column)
            entry = w.element(self.matrix, b.shl(index, w.integer(1)))
            u, v = w.load_splat(entry), w.load_splat(w.element(entry, 1))
            real = w.fma(v, y, w.fma(u, x, real), negate=not inverse)
            imaginary = w.fma(v, x, w.fma(u, y, imaginary), negate=inverse)
        return real, imaginary

    def differentiate(self, state: Value, cotangent: Value, gradients: Value) -> None:
        """Add the gradient, the sum over columns of cotangent times the state's conjugate, to that of the buffer.

        state: before the gate. cotangent: of the state after it.
        """
        w, b, size = self.w, self.w.b, self.w.integer(self.size)
        high, wide = _summed(self.size)
        with w.loop(self.size // high) as i, w.loop(self.size // wide) as j:
            rows = [b.add(b.mul(i, w.integer(high)), w.integer(k)) for k in range(high)]
            columns = [b.add(b.mul(j, w.integer(wide)), w.integer(k)) for k in range(wide)]
            sums = self._outer(
                [self._offset(k) for k in rows], [self._offset(k) for k in columns], state, cotangent
            )
            for start in range(0, len(sums), w.lanes):
                vectors = sums[start : start + w.lanes]
                vectors += [w.constant(0.0)] * (w.lanes - len(vectors))
                total = w.sums(vectors)
                for lane in range(min(w.lanes, len(sums) - start)):
                    entry, part = divmod(start + lane, 2)
                    row, column = divmod(entry, wide)
                    index = b.add(self.start, b.add(b.mul(rows[row], size), columns[column]))
                    address = w.element(gradients, b.add(b.shl(index, w.integer(1)), w.integer(part)))
                    value = b.extract_element(total, w.integer(lane))
                    b.store(b.fadd(w.load_real(address), value), address, align=w.bytes)

    def _outer(self, rows: list[Value], columns: list[Value], state: Value, cotangent: Value) -> list[Value]:
        """For these offsets, the sums of cotangent times conjugate state over the blocks: by row, column and part."""
        w, b = self.w, self.w.b
        with b.goto_entry_block():  # only there LLVM keeps variables in registers
            sums = [b.alloca(w.vector) for _ in range(2 * len(rows) * len(columns))]
        for each in sums:
            b.store(w.constant(0.0), each)
        with self._blocks() as block:
            before = [self._load(state, b.add(block, offset)) for offset in columns]
            places = iter(sums)
            for offset in rows:
                u, v = self._load(cotangent, b.add(block, offset))
                for x, y in before:
                    for first, second, negate in (((u, x), (v, y), False), ((v, x), (u, y), True)):
                        place = next(places)
                        total = w.fma(*first, b.load(place, typ=w.vector))
                        b.store(w.fma(*second, total, negate=negate), place)
        return [b.load(each, typ=w.vector) for each in sums]


def _summed(size: int) -> tuple[int, int]:
    """How many rows and columns of a gradient are summed at once; both divide its size.

    As many entries as fit, and of these shapes the nearest to a square, which loads least.
    """
    divisors = [k for k in range(1, size + 1) if size % k == 0]
    fitting = [(rows, columns) for rows in divisors for columns in divisors if rows * columns <= SUMMED]
    return max(fitting, key=lambda each: (each[0] * each[1], -abs(each[0] - each[1])))
