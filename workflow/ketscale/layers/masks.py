"""Dropout masks, scaled: compiled on a CPU, where a mask by torch's operators takes longer than a small layer."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ketscale.engines.compiled.library import Library, Recipe
from ketscale.layers import mask_kernels, randomness
from ketscale.layers.mask_kernels import LANES


def times(x: torch.Tensor, samples: torch.Tensor, keys: Sequence[randomness.Key], p: float) -> torch.Tensor:
    """x (n, ...) times a mask (n, columns) of `scaled`; of several runs, with as many keys, (runs, n, ...).

    Where it is one operator, nothing is kept for the backward pass, which draws the mask again.
    """
    columns = x.numel() // max(1, samples.numel())
    numbers = [key for key in keys if isinstance(key, int)]
    whole = columns and columns % LANES == 0 and x.is_contiguous()
    if whole and len(numbers) == len(keys) and _compiled(samples, x.dtype):
        made: torch.Tensor = _Times.apply(x, samples, numbers, p)
        return made
    runs = samples.view(len(keys), -1)
    drawn = [scaled(key, own, columns, p, x.dtype) for key, own in zip(keys, runs, strict=True)]
    mask = drawn[0] if len(drawn) == 1 else torch.stack(drawn)
    return x * mask.reshape(x.shape)


def scaled(
    key: randomness.Key, samples: torch.Tensor, columns: int, p: float, dtype: torch.dtype
) -> torch.Tensor:
    """`randomness.kept` times 1 / (1 - p), (len(samples), columns): the same on every device."""
    if not isinstance(key, int) or not _compiled(samples, dtype):
        return randomness.kept(key, samples, columns, p).to(dtype).mul_(1 / (1 - p))
    vectors = -(-columns // LANES)
    mask = torch.empty(len(samples), vectors * LANES, dtype=dtype)
    if mask.numel():
        call(_library(), named("draw", dtype), (mask,), samples, [key], p)
    return mask[:, :columns]


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, samples: torch.Tensor, keys: Sequence[int], p: float
    ) -> torch.Tensor:
        ctx.save_for_backward(samples)
        ctx.drawn = keys, p
        rows = x.view(*samples.shape, -1)
        out = torch.empty_like(rows)
        call(_library(), named("apply", x.dtype), (out, rows), samples, keys, p)
        return out.view_as(x)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _Times.apply(cotangent.contiguous(), *ctx.saved_tensors, *ctx.drawn), None, None, None


def _compiled(samples: torch.Tensor, dtype: torch.dtype) -> bool:
    return samples.is_cpu and dtype in (torch.float32, torch.float64)


def named(function: str, dtype: torch.dtype) -> str:
    """The name of a compiled function for numbers of this type."""
    return f"{function}_{'double' if dtype == torch.float64 else 'single'}"


def call(
    library: Library,
    name: str,
    tensors: Sequence[torch.Tensor],
    samples: torch.Tensor,
    keys: Sequence[int],
    p: float,
    *numbers: int,
) -> None:
    """Call a function whose arguments are tensors, all float32 or all float64, numbers, and then `mask_kernels.DRAWN`.

    tensors: the first is (..., columns), of whole vectors. samples: int64 (n,), or (runs, n). keys: of each run.
    """
    samples, first = samples.contiguous(), tensors[0]
    signed = array("q", map(randomness.signed, keys))
    vectors = first.shape[-1] // LANES
    # fmt: off
    arguments = array("q", (
        *[tensor.data_ptr() for tensor in tensors], *numbers, len(keys), samples.shape[-1], vectors,
        samples.data_ptr(), signed.buffer_info()[0], randomness.least(p), max(1, CHUNK_VECTORS // vectors), 0, 0,
    ))
    # fmt: on
    struct.pack_into(
        "d" if first.dtype == torch.float64 else "f", arguments, 8 * (len(arguments) - 1), 1 / (1 - p)
    )
    work = samples.numel() * vectors // VECTORS_PER_THREAD
    library.on_threads(name, arguments.buffer_info()[0], max(1, work and min(work, torch.get_num_threads())))


# What a thread takes at a time; and with fewer for each, more threads cost more than they save.
CHUNK_VECTORS = 1024
VECTORS_PER_THREAD = 4096

# The files whose changes make the compiled code outdated.
SOURCES = (Path(mask_kernels.__file__), Path(randomness.__file__))


@cache
def _library() -> Library:
    names = tuple(f"{name}_{precision}" for name in ("draw", "apply") for precision in ("single", "double"))
    return Library(Recipe("masks", names, mask_kernels.module, SOURCES))
