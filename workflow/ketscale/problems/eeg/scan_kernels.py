"""Writes the machine code of the selective scan, forward and backward, for `selective_scan`.

The lanes of a vector hold channels, and time is a loop in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from ketscale.engines.compiled.vector import Value, Writer

ARGUMENTS = (
    "next_row", "next_worker",  # counters, 0 at the start
    "rows", "steps",
    "rate",  # (state, channels)
    "dt", "x",  # (rows, steps, channels)
    "b", "c",  # (rows, steps, state)
    "y",  # (rows, steps, channels)
    "cotangent",  # of y
    "to_rate",  # (rows, state, channels)
    "to_dt", "to_x", "to_b", "to_c",  # gradients, of the shapes of dt, x, b and c
    "scratch", "scratch_vectors",  # address, and vectors for each worker
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The sizes that the code is written for; `lanes` is the number of floats in a vector."""

    channels: int
    state: int
    double: bool
    lanes: int

    def fits(self) -> bool:
        """Whether channels and states fill whole vectors."""
        return self.channels % self.lanes == 0 and self.state % self.lanes == 0

    def scratch_vectors(self, steps: int) -> int:
        """Vectors of a worker's scratch memory.

        They hold the carried states, the sums for the rates, then the states (one more for the start) and decays of
        every step that is kept. steps: the number of these steps, 0 in the forward pass.
        """
        return 2 * self.state + (2 * steps + 1) * self.state


def module(plan: Plan) -> ir.Module:
    """The functions `forward` and `backward`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_scan")
    _Scan(written, "forward", plan).forward()
    _Scan(written, "backward", plan).backward()
    return written


class _Scan:
    """Writes the scan of rows, or its backward pass, for every thread."""

    def __init__(self, module: ir.Module, name: str, plan: Plan) -> None:
        self.plan = plan
        self.w = Writer(module, name, plan.lanes, plan.double)
        w = self.w
        pointers = ("rate", "dt", "x", "b", "c", "y", "cotangent", "to_rate", "to_dt", "to_x", "to_b", "to_c")
        self.at = {each: w.argument(ARGUMENTS.index(each), True) for each in pointers}
        self.steps = w.argument(ARGUMENTS.index("steps"))

    @contextmanager
    def _rows(self) -> Iterator[Value]:
        """Write the body for each row that this worker takes."""
        w = self.w
        workers = w.argument_address(ARGUMENTS.index("next_worker"))
        worker = w.b.atomic_rmw("add", workers, w.integer(1), "monotonic")
        size = w.argument(ARGUMENTS.index("scratch_vectors"))
        scratch = w.argument(ARGUMENTS.index("scratch"), True)
        self.carried = w.at(scratch, w.b.mul(worker, size))
        self.sums = w.at(self.carried, self.plan.state)
        self.states = w.at(self.sums, self.plan.state)
        self.decays = w.at(
            self.states, w.b.mul(w.b.add(self.steps, w.integer(1)), w.integer(self.plan.state))
        )
        test, body, done = (w.b.append_basic_block(name) for name in ("next_row", "row", "done"))
        w.b.branch(test)
        w.b.position_at_end(test)
        counter = w.argument_address(ARGUMENTS.index("next_row"))
        row = w.b.atomic_rmw("add", counter, w.integer(1), "monotonic")
        w.b.cbranch(w.b.icmp_unsigned("<", row, w.argument(ARGUMENTS.index("rows"))), body, done)
        w.b.position_at_end(body)
        yield row
        w.b.branch(test)
        w.b.position_at_end(done)
        w.b.ret_void()

    def _zero(self, address: Value, vectors: int) -> None:
        for i in range(vectors):
            self.w.store(self.w.constant(0.0), self.w.at(address, i))

    def _channel(self, step: Value, block: Value) -> Value:
        """Index of a block's first float in arrays over channels; `step` counts the steps of all rows."""
        w = self.w
        return w.b.add(
            w.b.mul(step, w.integer(self.plan.channels)), w.b.mul(block, w.integer(self.plan.lanes))
        )

    def _load(self, name: str, number: Value) -> Value:
        return self.w.load(self.w.element(self.at[name], number), self.w.bytes)

    def _splats(self, name: str, step: Value) -> list[Value]:
        """b or c of a step, each entry in all lanes."""
        w = self.w
        first = w.b.mul(step, w.integer(self.plan.state))
        return [
            w.load_splat(w.element(self.at[name], w.b.add(first, w.integer(n))))
            for n in range(self.plan.state)
        ]

    def _rates(self, block: Value) -> list[Value]:
        return [self._load("rate", self._channel(self.w.integer(n), block)) for n in range(self.plan.state)]

    def _blocks(self) -> int:
        return self.plan.channels // self.plan.lanes

    def forward(self) -> None:
        """y of every row."""
        w = self.w
        with self._rows() as row, w.loop(self._blocks()) as block:
            self._zero(self.carried, self.plan.state)
            rates = self._rates(block)
            with w.loop(self.steps) as t:
                step = w.b.add(w.b.mul(row, self.steps), t)
                place = self._channel(step, block)
                dt, x = self._load("dt", place), self._load("x", place)
                y: Value = None
                bs, cs = self._splats("b", step), self._splats("c", step)
                for n, rate in enumerate(rates):
                    h = w.fma(w.exp(w.b.fmul(dt, rate)), w.load(w.at(self.carried, n)), w.b.fmul(bs[n], x))
                    w.store(h, w.at(self.carried, n))
                    y = w.fma(cs[n], h, y)
                w.store(y, w.element(self.at["y"], place), w.bytes)

    def backward(self) -> None:
        """All gradients; those by the rates separately for each row."""
        w, state = self.w, self.plan.state
        with self._rows() as row:
            first = w.b.mul(w.b.mul(row, self.steps), w.integer(state))
            with w.loop(w.b.mul(self.steps, w.integer(state // w.lanes))) as v:
                number = w.b.add(first, w.b.mul(v, w.integer(w.lanes)))
                for name in ("to_b", "to_c"):
                    w.store(w.constant(0.0), w.element(self.at[name], number), w.bytes)
            with w.loop(self._blocks()) as block:
                rates = self._rates(block)
                self._again(row, block, rates)
                self._zero(self.carried, state)
                self._zero(self.sums, state)
                with w.loop(self.steps) as s:
                    t = w.b.sub(w.b.sub(self.steps, w.integer(1)), s)
                    self._step_back(row, block, t, rates)
                for n in range(state):
                    number = self._channel(w.b.add(w.b.mul(row, w.integer(state)), w.integer(n)), block)
                    w.store(w.load(w.at(self.sums, n)), w.element(self.at["to_rate"], number), w.bytes)

    def _again(self, row: Value, block: Value, rates: list[Value]) -> None:
        """Recompute the states (0 before the first step) and decays of all steps of a row and block."""
        w, state = self.w, self.plan.state
        self._zero(self.states, state)
        with w.loop(self.steps) as t:
            step = w.b.add(w.b.mul(row, self.steps), t)
            place = self._channel(step, block)
            dt, x = self._load("dt", place), self._load("x", place)
            before = w.b.mul(t, w.integer(state))
            bs = self._splats("b", step)
            for n, rate in enumerate(rates):
                decay = w.exp(w.b.fmul(dt, rate))
                w.store(decay, w.at(self.decays, before, n))
                h = w.fma(decay, w.load(w.at(self.states, before, n)), w.b.fmul(bs[n], x))
                w.store(h, w.at(self.states, before, n + state))

    def _step_back(self, row: Value, block: Value, t: Value, rates: list[Value]) -> None:
        w, state = self.w, self.plan.state
        step = w.b.add(w.b.mul(row, self.steps), t)
        place = self._channel(step, block)
        dt, x, cotangent = (self._load(name, place) for name in ("dt", "x", "cotangent"))
        before = w.b.mul(t, w.integer(state))
        bs, cs = self._splats("b", step), self._splats("c", step)
        to_x: Value = None
        to_dt: Value = None
        to_bs, to_cs = [], []
        for n, rate in enumerate(rates):
            decay = w.load(w.at(self.decays, before, n))
            g = w.fma(cs[n], cotangent, w.load(w.at(self.carried, n)))
            to_bs.append(w.b.fmul(g, x))
            to_cs.append(w.b.fmul(w.load(w.at(self.states, before, n + state)), cotangent))
            to_x = w.fma(g, bs[n], to_x)
            carried = w.b.fmul(decay, g)
            w.store(carried, w.at(self.carried, n))
            # The gradient by the exponent dt * rate.
            exponent = w.b.fmul(carried, w.load(w.at(self.states, before, n)))
            to_dt = w.fma(exponent, rate, to_dt)
            w.store(w.fma(exponent, dt, w.load(w.at(self.sums, n))), w.at(self.sums, n))
        w.store(to_x, w.element(self.at["to_x"], place), w.bytes)
        w.store(to_dt, w.element(self.at["to_dt"], place), w.bytes)
        for name, vectors in (("to_b", to_bs), ("to_c", to_cs)):
            for group in range(0, state, w.lanes):
                number = w.b.add(w.b.mul(step, w.integer(state)), w.integer(group))
                address = w.element(self.at[name], number)
                total = w.sums(vectors[group : group + w.lanes])
                w.store(w.b.fadd(w.load(address, w.bytes), total), address, w.bytes)
