"""Dropout masks, scaled: compiled on a CPU, where a mask by torch's operators takes longer than a small layer."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ketscale.engines.compiled.kernel import Kernel, threads_for
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
        call(_kernel(dtype), "draw", samples, [key], p, mask.shape[-1], out=mask)
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
        call(_kernel(x.dtype), "apply", samples, keys, p, rows.shape[-1], out=out, values=rows)
        return out.view_as(x)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _Times.apply(cotangent.contiguous(), *ctx.saved_tensors, *ctx.drawn), None, None, None


def _compiled(samples: torch.Tensor, dtype: torch.dtype) -> bool:
    return samples.is_cpu and dtype in (torch.float32, torch.float64)


def call(
    kernel: Kernel,
    function: str,
    samples: torch.Tensor,
    keys: Sequence[int],
    p: float,
    columns: int,
    **values: Any,
) -> None:
    """Call a function that draws masks (see `mask_kernels.DRAWN`), with its other arguments.

    samples: int64 (n,), or (runs, n). keys: of each run. columns: of a mask, whole vectors.
    """
    samples, vectors = samples.contiguous(), columns // LANES
    # fmt: off
    kernel(
        function, threads_for(len(keys) * samples.shape[-1], samples.numel() * vectors, VECTORS_PER_THREAD),
        runs=len(keys), rows=samples.shape[-1], vectors=vectors, chunk_rows=max(1, CHUNK_VECTORS // vectors),
        threshold=randomness.least(p), samples=samples, keys=array("q", map(randomness.signed, keys)),
        scale=1 / (1 - p), **values,
    )
    # fmt: on


# What a thread takes at a time; and with fewer for each, more threads cost more than they save.
CHUNK_VECTORS = 1024
VECTORS_PER_THREAD = 4096


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    functions = mask_kernels.draw, mask_kernels.apply
    return Kernel(functions, mask_kernels.ARGUMENTS, dtype, LANES, sources=(randomness,))
