"""What the machine can do at best with the same threads: matrix product rate and copy bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ketscale.bench.stopwatch import steady

SIZE = 2048
# Far larger than any cache.
COPIED = 2**26


def product(size: int = SIZE) -> Callable[[], torch.Tensor]:
    """A single-precision product of size x size matrices, to be timed beside the simulators of a cell."""
    a, b, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    return lambda: torch.mm(a, b, out=out)


def product_gflops(seconds: float, size: int = SIZE) -> float:
    """The rate of such a product."""
    return 2 * size**3 / seconds / 1e9


def copy_gbs(copied: int = COPIED) -> float:
    """Bytes read and written by a copy of fp32 numbers, in 10^9 a second."""
    source, target = torch.rand(copied), torch.empty(copied)
    seconds = steady({"copy": lambda: target.copy_(source)}, repeats=5)["copy"].median_s
    return 2 * source.nbytes / seconds / 1e9
