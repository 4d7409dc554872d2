"""The selective scan of a state-space model, compiled: y[t] = c[t] . h[t], h[t] = exp(dt[t] rate) h[t - 1] + b[t] x[t].

Every channel has its own states, so the lanes of a vector hold channels, and time is a loop in registers. No state
leaves the cache, whereas a scan by torch's operators moves all states through memory dozens of times. The backward
pass recomputes the states of one row and one vector of channels and keeps them in the cache for the adjoint
recurrence g[t] = c[t] y'[t] + exp(dt[t + 1] rate) g[t + 1]. Source of the model: Gu and Dao, arXiv:2312.00752.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import one_by_one
from ketscale.problems.eeg import scan_kernels
from ketscale.problems.eeg.scan_kernels import ScanSizes


def fits(channels: int, state: int, dtype: torch.dtype) -> bool:
    """Whether the compiled scan supports these sizes and this precision on this processor."""
    return dtype in (torch.float32, torch.float64) and _sizes(channels, state, dtype).fits()


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

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: torch.Tensor) -> tuple[torch.Tensor, int]:
        return one_by_one(_SelectiveScan, info, in_dims, *inputs)


def _call(name: str, rate: torch.Tensor, x: torch.Tensor, **tensors: torch.Tensor) -> None:
    rows, steps, channels = x.shape
    sizes = _sizes(channels, len(rate), x.dtype)
    threads = min(torch.get_num_threads(), rows)
    size = sizes.scratch_vectors(steps) if name == "backward" else 0
    scratch = x.new_empty(threads * size * sizes.lanes)
    counts = {"rows": rows, "steps": steps, "scratch_vectors": size}
    _kernel(sizes, x.dtype)(name, threads, **counts, rate=rate, x=x, scratch=scratch, **tensors)


def _sizes(channels: int, state: int, dtype: torch.dtype) -> ScanSizes:
    # No more lanes than states, which have to fill whole vectors too.
    return ScanSizes(channels, state, min(lanes_of(dtype), state))


@lru_cache(maxsize=16)
def _kernel(sizes: ScanSizes, dtype: torch.dtype) -> Kernel:
    functions = scan_kernels.forward, scan_kernels.backward
    return Kernel(functions, scan_kernels.ARGUMENTS, dtype, sizes.lanes, sizes)
