"""Writes the machine code for merged gates, left (A x B) right, and their gradients, one gate a lane.

A and B are the evolutions of a pair's two sites, and left and right the couplings before and after them, which all gates
of a job share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from llvmlite import ir

from ketscale.engines.compiled.vector import I32, I64, POINTER, Value, Writer

ARGUMENTS = (
    "next_job",  # counter, 0 at the start
    "jobs", "table",  # (jobs, entries of `JOB`)
)  # fmt: skip

JOB = (
    "count",  # of gates
    "own", "own_stride", "second",  # A of each gate, with the distance of gates; where B is from A; in floats
    "left", "right",  # complex (D, D)
    "gates", "gates_stride",  # (D, D) of each gate: the result, or its cotangent
    "to_own",  # gradients, in the layout of `own`; 0 at the start
    "to_left", "to_right",  # real (D, D, 2, lanes), to be summed over lanes, 0 at the start; addresses 0: not needed
)  # fmt: skip

Complex = tuple[Value, Value]
Entries = Callable[[Value, Value], Complex]  # a matrix, by row and column


def module(levels: int, lanes: int) -> ir.Module:
    """The functions `merge` and `gradient`, which take the address of `ARGUMENTS`; threads take one job after the other."""
    written = ir.Module("ketscale_merging")
    _Function(written, "merge", levels, lanes).merge()
    _Function(written, "gradient", levels, lanes).gradient()
    return written


class _Function:
    """Writes one of the functions. Matrices are in scratch memory, a vector for each real and imaginary part."""

    def __init__(self, module: ir.Module, name: str, levels: int, lanes: int) -> None:
        self.w = Writer(module, name, lanes, double=True)
        self.small, self.size = levels, levels**2
        # A and B, the products of interest, and the gradients of these.
        self.a, self.b, self.to_a, self.to_b = (self._scratch(levels) for _ in range(4))
        self.product, self.ended, self.gate, self.other = (self._scratch(self.size) for _ in range(4))

    def _scratch(self, size: int) -> Value:
        return self.w.b.alloca(self.w.vector, size=2 * size * size)

    def _argument(self, name: str, pointer: bool = False) -> Value:
        """An entry of the job."""
        address = self.w.element(self._job, JOB.index(name), I64)
        return self.w.b.load(address, typ=POINTER if pointer else I64)

    def merge(self) -> None:
        """left (A x B) right of each gate."""
        with self._groups():
            self._prepare()
            self._multiply(self.left, self._in(self.ended), self.gate)
            self._scatter(self.gate, self.size, self._gates())

    def gradient(self) -> None:
        """The gradients of all four from those of the gates; that of A and B is added to what is there."""
        with self._groups():
            self._prepare()
            self._gather(self.gate, self.size, self._gates(), only_present=True)
            cotangent, ended, inner = self._in(self.gate), self._in(self.ended), self._in(self.other)
            self._multiply(_adjoint(self.w, self.left), cotangent, self.other)
            to_left, to_right = (self._argument(each, True) for each in ("to_left", "to_right"))
            with self.w.b.if_then(self.w.b.icmp_unsigned("!=", self._argument("to_left"), self.w.integer(0))):
                self._multiply(cotangent, _adjoint(self.w, ended), to_left, add=True)
                self._multiply(_adjoint(self.w, self._in(self.product)), inner, to_right, add=True)
            self._multiply(inner, _adjoint(self.w, self.right), self.gate)
            self._back_to_sites()

    def _prepare(self) -> None:
        """A, B, their Kronecker product and that times `right`."""
        own = self._own("own")
        self._gather(self.a, self.small, own)
        self._gather(self.b, self.small, self._seconds(own))
        a, b = self._in(self.a), self._in(self.b)
        with self._four() as (i, j, k, m):
            (u, v), (x, y) = a(i, j), b(k, m)
            self._put(self.product, self._row(i, k), self._row(j, m), _times(self.w, u, v, x, y), self.size)
        self._multiply(self._in(self.product), self.right, self.ended)

    def _back_to_sites(self) -> None:
        """Add the gradients of A and B, from that of their Kronecker product in `gate`."""
        w = self.w
        for place in (self.to_a, self.to_b):
            with w.loop(2 * self.size) as number:
                w.store(w.constant(0.0), w.at(place, number))
        a, b = self._in(self.a), self._in(self.b)
        to_a, to_b = self._in(self.to_a), self._in(self.to_b)
        with self._four() as (i, j, k, m):
            u, v = self._in(self.gate)(self._row(i, k), self._row(j, m))
            for place, at, sum_, other in (
                (self.to_a, (i, j), to_a(i, j), b(k, m)),
                (self.to_b, (k, m), to_b(k, m), a(i, j)),
            ):
                self._put(place, *at, _times(w, u, v, other[0], w.b.fneg(other[1]), sum_), self.small)
        own = self._own("to_own")
        self._scatter(self.to_a, self.small, own, add=True)
        self._scatter(self.to_b, self.small, self._seconds(own), add=True)

    # --- matrices ---

    @contextmanager
    def _four(self) -> Iterator[list[Value]]:
        with ExitStack() as stack:
            yield [stack.enter_context(self.w.loop(self.small)) for _ in range(4)]

    def _row(self, first: Value, second: Value) -> Value:
        return self.w.b.add(self.w.b.mul(first, self.w.integer(self.small)), second)

    def _in(self, place: Value) -> Entries:
        """The matrix in scratch memory; its size follows from the place."""
        size = self.small if place in (self.a, self.b, self.to_a, self.to_b) else self.size

        def entry(i: Value, j: Value) -> Complex:
            at = self._address(place, i, j, size)
            return self.w.load(at), self.w.load(self.w.at(at, 1))

        return entry

    def _shared(self, name: str) -> Entries:
        """A matrix that all lanes share."""
        base, w = self._argument(name, True), self.w

        def entry(i: Value, j: Value) -> Complex:
            index = w.b.add(w.b.mul(i, w.integer(self.size)), j)
            at = w.element(base, w.b.shl(index, w.integer(1)))
            return w.load_splat(at), w.load_splat(w.element(at, 1))

        return entry

    def _address(self, place: Value, i: Value, j: Value, size: int) -> Value:
        index = self.w.b.add(self.w.b.mul(i, self.w.integer(size)), j)
        return self.w.at(place, self.w.b.shl(index, self.w.integer(1)))

    def _put(self, place: Value, i: Value, j: Value, value: Complex, size: int) -> None:
        at = self._address(place, i, j, size)
        self.w.store(value[0], at)
        self.w.store(value[1], self.w.at(at, 1))

    def _multiply(self, left: Entries, right: Entries, place: Value, add: bool = False) -> None:
        """The product of two matrices, or with `add` the sum of it and what is there.

        Some entries of a row are summed at once, since each sum waits for its last addition.
        """
        w, b = self.w, self.w.b
        wide = 4 if self.small == 2 else self.small
        with b.goto_entry_block():  # only there LLVM keeps variables in registers
            sums = [(b.alloca(w.vector), b.alloca(w.vector)) for _ in range(wide)]
        with w.loop(self.size) as i, w.loop(self.size // wide) as tile:
            columns = [b.add(b.mul(tile, w.integer(wide)), w.integer(number)) for number in range(wide)]
            for j, parts in zip(columns, sums, strict=True):
                at = self._address(place, i, j, self.size)
                for number, part in enumerate(parts):
                    b.store(w.load(w.at(at, number)) if add else w.constant(0.0), part)
            with w.loop(self.size) as k:
                u, v = left(i, k)
                for j, parts in zip(columns, sums, strict=True):
                    before = b.load(parts[0], typ=w.vector), b.load(parts[1], typ=w.vector)
                    for value, part in zip(_times(w, u, v, *right(k, j), before), parts, strict=True):
                        b.store(value, part)
            for j, parts in zip(columns, sums, strict=True):
                self._put(place, i, j, tuple(b.load(part, typ=w.vector) for part in parts), self.size)

    # --- gates in memory ---

    @contextmanager
    def _groups(self) -> Iterator[None]:
        """Loop over a job's vectors of gates; the lanes after the last gate repeat it, and have no cotangent."""
        w, b = self.w, self.w.b
        counter, jobs = w.argument_address(ARGUMENTS.index("next_job")), w.argument(ARGUMENTS.index("jobs"))
        with w.taken(counter, jobs) as job:
            table = w.argument(ARGUMENTS.index("table"), pointer=True)
            self._job = w.element(table, b.mul(job, w.integer(len(JOB))), I64)
            self.left, self.right = (self._shared(each) for each in ("left", "right"))
            count = self._argument("count")
            last = b.sub(count, w.integer(1))
            groups = b.udiv(b.add(last, w.integer(w.lanes)), w.integer(w.lanes))
            with w.loop(groups) as group:
                first = b.mul(group, w.integer(w.lanes))
                numbers = [b.add(first, w.integer(lane)) for lane in range(w.lanes)]
                self._numbers = [b.select(b.icmp_unsigned("<", each, last), each, last) for each in numbers]
                self._present = [b.icmp_unsigned("<", each, count) for each in numbers]
                yield

    def _strided(self, name: str, stride: str) -> list[Value]:
        w = self.w
        base, distance = self._argument(name, True), self._argument(stride)
        return [w.element(base, w.b.mul(number, distance)) for number in self._numbers]

    def _own(self, name: str) -> list[Value]:
        return self._strided(name, "own_stride")

    def _seconds(self, own: list[Value]) -> list[Value]:
        return [self.w.element(each, self._argument("second")) for each in own]

    def _gates(self) -> list[Value]:
        return self._strided("gates", "gates_stride")

    def _gather(self, place: Value, size: int, lanes: list[Value], only_present: bool = False) -> None:
        """The matrices of the gates, a lane each."""
        w, zero = self.w, ir.Constant(self.w.real, 0.0)
        with w.loop(2 * size * size) as number:
            vector = ir.Constant(w.vector, ir.Undefined)
            for lane, base in enumerate(lanes):
                value = w.load_real(w.element(base, number))
                if only_present:
                    value = w.b.select(self._present[lane], value, zero)
                vector = w.b.insert_element(vector, value, ir.Constant(I32, lane))
            w.store(vector, w.at(place, number))

    def _scatter(self, place: Value, size: int, lanes: list[Value], add: bool = False) -> None:
        """The inverse of `_gather`; with `add` to what is there, which repeated lanes leave as it is."""
        w = self.w
        with w.loop(2 * size * size) as number:
            vector = w.load(w.at(place, number))
            for lane, base in enumerate(lanes):
                at = w.element(base, number)
                value = w.b.extract_element(vector, ir.Constant(I32, lane))
                w.b.store(w.b.fadd(w.load_real(at), value) if add else value, at, align=w.bytes)


def _times(
    w: Writer, u: Value, v: Value, x: Value, y: Value, start: tuple[Value | None, Value | None] = (None, None)
) -> Complex:
    """(u + iv) (x + iy), plus `start`."""
    real = w.fma(v, y, w.fma(u, x, start[0]), negate=True)
    return real, w.fma(v, x, w.fma(u, y, start[1]))


def _adjoint(w: Writer, entries: Entries) -> Entries:
    def entry(i: Value, j: Value) -> Complex:
        real, imaginary = entries(j, i)
        return real, w.b.fneg(imaginary)

    return entry
