"""The selective scan of a state-space model, compiled: y[t] = c[t] . h[t], h[t] = exp(dt[t] rate) h[t - 1] + b[t] x[t].

Every channel has its own states, so the lanes of a vector hold channels, and time is a loop in registers. No state
leaves the cache, whereas a scan by torch's operators (`state_space.scanned`, on GPUs) moves all states through memory dozens of times. The backward
pass recomputes the states of one row and one vector of channels and keeps them in the cache for the adjoint
recurrence g[t] = c[t] y'[t] + exp(dt[t + 1] rate) g[t + 1]. Source of the model: Gu and Dao, arXiv:2312.00752.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.functions import exp
from ketscale.engines.compiled.kernel import Kernel, lanes_of
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    FunctionCode,
    Number,
    aligned,
    fma,
    lane_sums,
    reals,
    vectors,
)
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import one_by_one

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

    def scratch_vectors(self, steps: int) -> int:
        """Vectors of a thread's scratch memory in the backward pass: states before and after each step, and decays."""
        return (2 * steps + 1) * self.state


def write_scan(k: FunctionCode, args: Arguments, sizes: ScanSizes) -> None:
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


def write_gradients(k: FunctionCode, args: Arguments, sizes: ScanSizes) -> None:
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
            _recompute(k, args, rates, h, decays, row, v)
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


def _recompute(
    k: FunctionCode, args: Arguments, rates: list[Number], h: Buffer, decays: Buffer, row: Number, v: Number
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


def selective_scan(
    rate: torch.Tensor, dt: torch.Tensor, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    """y (rows, steps, channels), differentiable in all arguments; on the CPU, in fp32 or fp64.

    rate: (channels, state). dt, x: (rows, steps, channels). b, c: (rows, steps, state). Channels and states must fill whole vectors.
    """
    result: torch.Tensor = _SelectiveScan.apply(*(part.contiguous() for part in (rate.T, dt, x, b, c)))
    return result


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(
        rate: torch.Tensor, dt: torch.Tensor, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor
    ) -> torch.Tensor:
        y = torch.empty_like(x)
        if len(x):
            _call("write_scan", rate, x, dt=dt, b=b, c=c, y=y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first_derivatives_only("a selective scan")
        rate, dt, x, b, c = ctx.saved_tensors
        to_rate = rate.new_empty(len(x), *rate.shape)
        to_dt, to_x, to_b, to_c = (torch.empty_like(part) for part in (dt, x, b, c))
        if len(x):
            # fmt: off
            _call(
                "write_gradients", rate, x, dt=dt, b=b, c=c, cotangent=cotangent.contiguous(),
                to_rate=to_rate, to_dt=to_dt, to_x=to_x, to_b=to_b, to_c=to_c,
            )
            # fmt: on
        return to_rate.sum(0), to_dt, to_x, to_b, to_c

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: torch.Tensor) -> tuple[torch.Tensor, int]:
        return one_by_one(_SelectiveScan, info, in_dims, *inputs)


def _call(name: str, rate: torch.Tensor, x: torch.Tensor, **tensors: torch.Tensor) -> None:
    rows, steps, channels = x.shape
    sizes = _sizes(channels, len(rate), x.dtype)
    threads = min(torch.get_num_threads(), rows)
    size = sizes.scratch_vectors(steps) if name == "write_gradients" else 0
    scratch = x.new_empty(threads * size * sizes.lanes)
    counts = {"rows": rows, "steps": steps, "scratch_vectors": size}
    _kernel(sizes, x.dtype).run(name, threads, **counts, rate=rate, x=x, scratch=scratch, **tensors)


def _sizes(channels: int, state: int, dtype: torch.dtype) -> ScanSizes:
    # No more lanes than states, which have to fill whole vectors too.
    return ScanSizes(channels, state, min(lanes_of(dtype), state))


@lru_cache(maxsize=16)
def _kernel(sizes: ScanSizes, dtype: torch.dtype) -> Kernel:
    functions = write_scan, write_gradients
    return Kernel(functions, ARGUMENTS, dtype, sizes.lanes, sizes)
