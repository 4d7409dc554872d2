"""What a GPU can do without its tensor cores: multiply-adds from registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

# Blocks of 128 threads with eight numbers each, enough to fill a processor; loops of about half a millisecond.
SIZE, BLOCKS = 1024, 16
OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": True}
UNROLLED = 16
MULTIPLY_ADDS = 8192


@triton.jit
def multiply_add(
    numbers: tl.tensor,
    factor: tl.tensor,
    addend: tl.tensor,
    rounds: tl.tensor,
    SIZE: tl.constexpr,  # noqa: N803 (Triton's constants are capitals)
    UNROLLED: tl.constexpr,  # noqa: N803
) -> None:
    """Repeat number * factor + addend, every number independent of the others."""
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    number = tl.load(numbers + place)
    for _round in range(rounds):
        for _part in tl.static_range(UNROLLED):
            number = number * factor + addend
    tl.store(numbers + place, number)


def blocks(device: torch.device) -> int:
    """Enough to fill the GPU."""
    return BLOCKS * torch.cuda.get_device_properties(device).multi_processor_count


def flops(device: torch.device) -> int:
    """Floating point operations of a call of `multiply_adds`."""
    return 2 * SIZE * blocks(device) * MULTIPLY_ADDS


def multiply_adds(device: torch.device) -> tuple[Callable[[], Any], torch.device]:
    """The call to time, and its device."""
    numbers = torch.rand(blocks(device), SIZE, device=device)

    def call() -> None:
        multiply_add[(len(numbers),)](
            numbers, 0.999, 0.001, MULTIPLY_ADDS // UNROLLED, SIZE=SIZE, UNROLLED=UNROLLED, **OPTIONS
        )

    return call, device
