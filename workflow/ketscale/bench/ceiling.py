"""What the machine can do at best with the same threads: matrix product rate and copy bandwidth."""

from __future__ import annotations

import torch

from ketscale.bench.stopwatch import steady

SIZE = 2048
# Far larger than any cache.
COPIED = 2**26


def measure(size: int = SIZE, copied: int = COPIED) -> dict[str, float]:
    """fp32 `matmul_gflops` of size x size matrices; `copy_gbs`, bytes read and written by a copy of fp32 numbers."""
    a, b, product = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    source, target = torch.rand(copied), torch.empty(copied)
    times = steady(
        {"matmul": lambda: torch.mm(a, b, out=product), "copy": lambda: target.copy_(source)}, repeats=5
    )
    return {
        "matmul_gflops": 2 * size**3 / times["matmul"].median_s / 1e9,
        "copy_gbs": 2 * source.nbytes / times["copy"].median_s / 1e9,
    }
