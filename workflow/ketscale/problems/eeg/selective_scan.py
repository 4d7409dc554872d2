"""The selective scan of a state-space model, compiled: y[t] = c[t] . h[t], h[t] = exp(dt[t] rate) h[t - 1] + b[t] x[t].

Every channel has its own states, so the lanes of a vector hold channels, and time is a loop in registers. No state
leaves the cache, whereas a scan by torch's operators moves all states through memory dozens of times. The backward
pass recomputes the states of one row and one vector of channels and keeps them in the cache for the adjoint
recurrence g[t] = c[t] y'[t] + exp(dt[t + 1] rate) g[t + 1]. Source of the model: Gu and Dao, arXiv:2312.00752.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ketscale.engines.compiled.library import Library, Recipe, vector_bytes
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.problems.eeg import scan_kernels
from ketscale.problems.eeg.scan_kernels import ARGUMENTS, Plan


def fits(channels: int, state: int, dtype: torch.dtype) -> bool:
    """Whether the compiled scan supports these sizes and this precision on this processor."""
    return dtype in (torch.float32, torch.float64) and _plan(channels, state, dtype).fits()


def selective_scan(
    rate: torch.Tensor, dt: torch.Tensor, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    """y (rows, steps, channels), differentiable in all arguments; on the CPU, in fp32 or fp64.

    rate: (channels, state). dt, x: (rows, steps, channels). b, c: (rows, steps, state). Sizes must satisfy `fits`.
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
            _call("forward", rate, x, dt=dt, b=b, c=c, y=y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: torch.Tensor) -> tuple[torch.Tensor, int]:
        """One scan after the other: each is long enough to keep all threads busy."""
        members = [
            part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0).contiguous()
            for part, dim in zip(inputs, in_dims, strict=True)
        ]
        return torch.stack([_SelectiveScan.apply(*parts) for parts in zip(*members, strict=True)]), 0

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first_derivatives_only("a selective scan")
        rate, dt, x, b, c = ctx.saved_tensors
        to_rate = rate.new_empty(len(x), *rate.shape)
        to_dt, to_x, to_b, to_c = (torch.empty_like(part) for part in (dt, x, b, c))
        if len(x):
            # fmt: off
            _call(
                "backward", rate, x, dt=dt, b=b, c=c, cotangent=cotangent.contiguous(),
                to_rate=to_rate, to_dt=to_dt, to_x=to_x, to_b=to_b, to_c=to_c,
            )
            # fmt: on
        return to_rate.sum(0), to_dt, to_x, to_b, to_c


def _call(name: str, rate: torch.Tensor, x: torch.Tensor, **tensors: torch.Tensor) -> None:
    rows, steps, channels = x.shape
    plan = _plan(channels, len(rate), x.dtype)
    threads = min(torch.get_num_threads(), rows)
    size = plan.scratch_vectors(steps if name == "backward" else 0)
    scratch = torch.empty(threads * size * plan.lanes, dtype=x.dtype)
    values = {name: tensor.data_ptr() for name, tensor in {"rate": rate, "x": x, **tensors}.items()}
    values |= {"rows": rows, "steps": steps, "scratch": scratch.data_ptr(), "scratch_vectors": size}
    arguments = array("q", [values.get(argument, 0) for argument in ARGUMENTS])
    _library(plan).on_threads(name, arguments.buffer_info()[0], threads)


def _plan(channels: int, state: int, dtype: torch.dtype) -> Plan:
    double = dtype == torch.float64
    # No more lanes than states, which have to fill whole vectors too.
    lanes = min(vector_bytes() // (8 if double else 4), state)
    return Plan(channels, state, double, lanes)


# The files whose changes make the compiled code outdated.
SOURCES = (Path(scan_kernels.__file__),)


@lru_cache(maxsize=16)
def _library(plan: Plan) -> Library:
    recipe = Recipe(repr(plan), ("forward", "backward"), lambda: scan_kernels.module(plan), SOURCES)
    return Library(recipe)
