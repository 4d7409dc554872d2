"""Writes how machine code of `kernels` reads and stores tasks, of which each lane of a vector has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from ketscale.engines.compiled.vector import I32, Value, Writer
from ketscale.engines.dynamics.plan import ARGUMENTS, Plan

Vectors = dict[int, Value]  # by coordinate


class Variables:
    """Vectors that loops change; LLVM keeps them in registers where it can."""

    def __init__(self, w: Writer, keys: Sequence[int]) -> None:
        self.w = w
        self._at = {key: w.b.alloca(w.vector) for key in keys}

    def get(self) -> Vectors:
        """Their values."""
        return {key: self.w.b.load(at, typ=self.w.vector) for key, at in self._at.items()}

    def set(self, values: Vectors) -> None:
        """Give them values."""
        for key, at in self._at.items():
            self.w.b.store(values[key], at)

    def zero(self) -> None:
        """Make them 0."""
        self.set(dict.fromkeys(self._at, self.w.constant(0.0)))


class Lanes:
    """A function that is being written: it finds its arguments by name, takes groups of tasks, and reads and stores them.

    rows: the coordinates that change.
    """

    def __init__(self, module: ir.Module, name: str, plan: Plan) -> None:
        self.plan = plan
        self.w = Writer(module, name, plan.lanes, plan.double)
        self.rows = plan.forms.rows
        self.segments = self.argument("segments")

    def argument(self, name: str, pointer: bool = False) -> Value:
        """The value of an argument: a 64-bit integer, or an address."""
        return self.w.argument(ARGUMENTS.index(name), pointer)

    @contextmanager
    def groups(self) -> Iterator[None]:
        """Write the body for each group of tasks that this worker takes."""
        w, b = self.w, self.w.b
        worker = b.atomic_rmw(
            "add", w.argument_address(ARGUMENTS.index("next_worker")), w.integer(1), "monotonic"
        )
        scratch = w.at(self.argument("scratch", True), b.mul(worker, w.integer(self.plan.scratch_vectors)))
        self.terms, self.blocks = scratch, w.at(scratch, self.plan.degrees[-1] * len(self.rows))
        test, body, done = (b.append_basic_block(name) for name in ("next_group", "group", "done"))
        b.branch(test)
        b.position_at_end(test)
        counter = w.argument_address(ARGUMENTS.index("next_group"))
        self.group = b.atomic_rmw("add", counter, w.integer(1), "monotonic")
        b.cbranch(b.icmp_unsigned("<", self.group, self.argument("groups")), body, done)
        b.position_at_end(body)
        last = b.sub(self.argument("batch"), w.integer(1))
        first = b.mul(self.group, w.integer(w.lanes))
        self.tasks = []
        for lane in range(w.lanes):
            # The lanes after the last task repeat it, and store the same numbers once more.
            task = b.add(first, w.integer(lane))
            self.tasks.append(b.select(b.icmp_unsigned("<", task, last), task, last))
        yield
        b.branch(test)
        b.position_at_end(done)
        b.ret_void()

    def addresses(self, name: str, stride: Value) -> list[Value]:
        """The addresses of the tasks' first floats in an array."""
        base = self.argument(name, True)
        return [self.w.element(base, self.w.b.mul(task, stride)) for task in self.tasks]

    def gather(self, lanes: Sequence[Value], index: Value | int) -> Value:
        """The float at an index of each task."""
        w = self.w
        vector = ir.Constant(w.vector, ir.Undefined)
        for lane, base in enumerate(lanes):
            vector = w.b.insert_element(vector, w.load_real(w.element(base, index)), ir.Constant(I32, lane))
        return vector

    def scatter(self, vector: Value, lanes: Sequence[Value], index: Value | int) -> None:
        """Store a vector, the inverse of `gather`."""
        w = self.w
        for lane, base in enumerate(lanes):
            value = w.b.extract_element(vector, ir.Constant(I32, lane))
            w.b.store(value, w.element(base, index), align=w.bytes)

    def keep(self, values: Vectors, at: Value) -> None:
        """Store the changing coordinates side by side."""
        for number, row in enumerate(self.rows):
            self.w.store(values[row], self.w.at(at, number), self._align)

    def kept(self, at: Value) -> Vectors:
        """What `keep` has stored."""
        return {row: self.w.load(self.w.at(at, number), self._align) for number, row in enumerate(self.rows)}

    @property
    def _align(self) -> int:
        """torch aligns what it allocates to 64 bytes."""
        return min(64, self.w.lanes * self.w.bytes)

    def saved(self, segment: Value) -> Value:
        """Where the state before a segment is kept for the backward pass."""
        w = self.w
        place = w.b.add(w.b.mul(self.group, self.segments), segment)
        return w.at(self.argument("saved", True), w.b.mul(place, w.integer(len(self.rows))))
