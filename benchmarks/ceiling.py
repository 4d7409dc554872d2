"""What a device can do at best: arithmetic and copy bandwidth, measured in the same run as the simulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.machine import finished
from benchmarks.stopwatch import steady

SIZE = 2048
# The tensor cores of a GPU are not used; it still needs larger matrices to be busy.
GPU_SIZE = 8192
# Far larger than any cache.
COPIED = 2**26


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


def copy_gbs(device: torch.device, copied: int = COPIED) -> float:
    """Bytes read and written by a copy of fp32 numbers, in 10^9 a second."""
    source, target = torch.rand(copied, device=device), torch.empty(copied, device=device)
    copy = finished(lambda: target.copy_(source), device)
    return 2 * source.nbytes / steady({"copy": copy}, repeats=5)["copy"].median_s / 1e9


def once(device: torch.device) -> dict[str, float | None]:
    """What is measured once in a run, by name: copy bandwidth; of a GPU also matrix product and exchange."""
    result: dict[str, float | None] = {"copy_gbs": copy_gbs(device)}
    if device.type == "cuda":
        from benchmarks import gpu_ceiling

        matmul = product(device)
        times = steady({"product": matmul.call}, repeats=5)
        result[matmul.name] = gflops(matmul.flops, times["product"].median_s)
        result["exchange_gbs"] = gpu_ceiling.exchange_gbs(device)
    return result
