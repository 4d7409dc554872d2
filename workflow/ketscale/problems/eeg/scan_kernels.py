"""The compiled code of the selective scan, forward and backward, for `selective_scan`.

The lanes of a vector hold channels, and time is a loop in registers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ketscale.engines.compiled.functions import exp
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    Code,
    Number,
    aligned,
    fma,
    lane_sums,
    reals,
    vectors,
)

# Gradients have the shapes of what they are by; those by the rates are separate for each row.
ARGUMENTS = {
    "rows steps": INTEGER,
    "rate": vectors("state", "blocks"),
    "dt x y cotangent to_dt to_x": vectors("rows", "steps", "blocks"),
    "b c": reals("rows", "steps", "state"),
    "to_b to_c": vectors("rows", "steps", "groups"),
    "to_rate": vectors("rows", "state", "blocks"),
    "scratch": aligned("workers", "scratch_vectors"),
    "scratch_vectors": INTEGER,
}


class ScanSizes(NamedTuple):
    """The sizes that the code is written for; `lanes` is the number of floats in a vector."""

    channels: int
    state: int
    lanes: int

    @property
    def blocks(self) -> int:
        """Vectors of channels."""
        return self.channels // self.lanes

    @property
    def groups(self) -> int:
        """Vectors of states."""
        return self.state // self.lanes

    def fits(self) -> bool:
        """Whether channels and states fill whole vectors."""
        return self.channels % self.lanes == 0 and self.state % self.lanes == 0

    def scratch_vectors(self, steps: int) -> int:
        """Vectors of a thread's scratch memory in the backward pass: states before and after each step, and decays."""
        return (2 * steps + 1) * self.state


def forward(k: Code, args: Arguments, sizes: ScanSizes) -> None:
    """y of every row."""
    states = range(sizes.state)
    h = k.variable([k.vector(0.0) for _ in states])
    with k.tasks(args.rows) as row, k.loop(sizes.blocks) as v:
        h.value = [k.vector(0.0) for _ in states]
        rates = [args.rate[n, v] for n in states]
        with k.loop(args.steps) as t:
            dt, x, b, c = args.dt[row, t, v], args.x[row, t, v], args.b[row, t], args.c[row, t]
            after = [fma(exp(dt * rates[n]), h.value[n], b[n] * x) for n in states]
            y: Any = None
            for n in states:
                y = fma(c[n], after[n], y)
            h.value = after
            args.y[row, t, v] = y


def backward(k: Code, args: Arguments, sizes: ScanSizes) -> None:
    """All gradients, from that by y."""
    state, steps = sizes.state, args.steps
    h, decays = args.scratch[k.worker()].split((steps + 1, state), (steps, state))
    zeros = [k.vector(0.0) for _ in range(state)]
    # The adjoint of the state, and the gradients by the rates.
    carried, to_rates = k.variable(zeros), k.variable(zeros)
    with k.tasks(args.rows) as row:
        args.to_b[row].zero(steps * sizes.groups)
        args.to_c[row].zero(steps * sizes.groups)
        with k.loop(sizes.blocks) as v:
            rates = [args.rate[n, v] for n in range(state)]
            _again(k, args, rates, h, decays, row, v)
            carried.value, to_rates.value = zeros, zeros
            with k.loop(steps, backwards=True) as t:
                dt, x, to_y = args.dt[row, t, v], args.x[row, t, v], args.cotangent[row, t, v]
                b, c = args.b[row, t], args.c[row, t]
                back, sums = carried.value, to_rates.value
                to_b, to_c = [], []
                to_x: Any = None
                to_dt: Any = None
                for n, rate in enumerate(rates):
                    adjoint = fma(c[n], to_y, back[n])
                    to_b.append(adjoint * x)
                    to_c.append(h[t + 1, n] * to_y)
                    to_x = fma(adjoint, b[n], to_x)
                    back[n] = decays[t, n] * adjoint
                    to_exponent = back[n] * h[t, n]
                    to_dt = fma(to_exponent, rate, to_dt)
                    sums[n] = fma(to_exponent, dt, sums[n])
                carried.value, to_rates.value = back, sums
                args.to_x[row, t, v], args.to_dt[row, t, v] = to_x, to_dt
                for group in range(sizes.groups):
                    own = slice(group * k.lanes, (group + 1) * k.lanes)
                    args.to_b[row, t, group] = args.to_b[row, t, group] + lane_sums(to_b[own])
                    args.to_c[row, t, group] = args.to_c[row, t, group] + lane_sums(to_c[own])
            for n, total in enumerate(to_rates.value):
                args.to_rate[row, n, v] = total


def _again(
    k: Code, args: Arguments, rates: list[Number], h: Buffer, decays: Buffer, row: Number, v: Number
) -> None:
    """Compute the states (0 before the first step) and decays of all steps of a row and block."""
    for n in range(len(rates)):
        h[0, n] = 0.0
    with k.loop(args.steps) as t:
        dt, x, b = args.dt[row, t, v], args.x[row, t, v], args.b[row, t]
        for n, rate in enumerate(rates):
            decay = exp(dt * rate)
            decays[t, n] = decay
            h[t + 1, n] = fma(decay, h[t, n], b[n] * x)
