"""What arithmetic a device can do at best, measured in the same run as the simulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.machine import finished

SIZE = 2048
# The tensor cores of a GPU are not used; it still needs larger matrices to be busy.
GPU_SIZE = 8192


class Ceiling(NamedTuple):
    """A call to be timed beside the simulators, and its floating point operations; name: its rate's."""

    name: str
    call: Callable[[], Any]
    flops: int


def of(device: torch.device) -> Ceiling:
    """What simulators are compared with: the matrix product of a CPU, the multiply-adds of a GPU.

    A GPU's simulators use no tensor cores, and cannot be faster than its ordinary units.
    """
    if device.type == "cpu":
        return product(device)
    from benchmarks import gpu_ceiling

    return Ceiling("fma_gflops", finished(*gpu_ceiling.multiply_adds(device)), gpu_ceiling.flops(device))


def product(device: torch.device, dtype: torch.dtype = torch.float32) -> Ceiling:
    """A product of square matrices."""
    size = SIZE if device.type == "cpu" else GPU_SIZE
    a, b, out = (torch.rand(size, size, device=device, dtype=dtype) for _ in range(3))
    name = "matmul_gflops" if dtype == torch.float32 else "matmul64_gflops"
    return Ceiling(name, finished(lambda: torch.mm(a, b, out=out), device), 2 * size**3)


def gflops(flops: int, seconds: float) -> float:
    """A rate."""
    return flops / seconds / 1e9
