"""Dropout masks, scaled: compiled on a CPU, where a mask by torch's operators takes longer than a small layer.

The compiled code draws the numbers of `randomness.kept`: a mixed word gives four of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from llvmlite import ir

from ketscale.engines import randomness
from ketscale.engines.compiled.kernel import Kernel, threads_for
from ketscale.engines.compiled.language import (
    I16,
    I64,
    INTEGER,
    REAL,
    Arguments,
    FunctionCode,
    Number,
    ceil_divided,
    chunk,
    integers,
    select,
    vectors,
)
from ketscale.engines.randomness import FIRST, GAMMA, SECOND

# The lanes of a vector hold columns.
LANES = 16
# rows: of each run. chunk_rows: a thread takes so many rows at a time.
ARGUMENTS = {
    "runs rows vectors chunk_rows threshold": INTEGER,
    "samples": integers("all_rows"),
    "keys": integers("runs"),
    "scale": REAL,
    "out values": vectors("all_rows", "vectors"),
}


def write_masks(k: FunctionCode, args: Arguments) -> None:
    """out <- mask."""
    with _each_mask(k, args) as (row, vector, mask):
        args.out[row, vector] = mask


def write_products(k: FunctionCode, args: Arguments) -> None:
    """out <- values * mask."""
    with _each_mask(k, args) as (row, vector, mask):
        args.out[row, vector] = args.values[row, vector] * mask


@contextmanager
def _each_mask(k: FunctionCode, args: Arguments) -> Iterator[tuple[Number, Number, Number]]:
    """Write the body for each vector of a mask, with its row among those of all runs and its place in it."""
    every = args.runs * args.rows
    with k.tasks(ceil_divided(every, args.chunk_rows)) as number:
        first, count = chunk(number, args.chunk_rows, every)
        with k.loop(count) as own:
            row = first + own
            key = args.keys[row // args.rows]
            mask = row_of_mask(k, args.samples[row], key, args.threshold, args.scale)
            with k.loop(args.vectors) as vector:
                yield row, vector, mask(vector)


def row_of_mask(
    k: FunctionCode, sample: Number, key: Number, threshold: Number, scale: Number
) -> Callable[[Number], Number]:
    """The mask of a sample, by the number of a vector in its row."""
    words = LANES // 4
    steps = k.constant([(1 + word) * GAMMA for word in range(words)], ir.VectorType(I64, words))
    start = mixed(sample * GAMMA + key)

    def vector_of(number: Number) -> Number:
        word = (start + number * (words * GAMMA)).splat(words) + steps
        bits = mixed(word).bits(I16, LANES)
        return select(bits.signed >= threshold.truncated(I16).splat(), scale.splat(), 0.0)

    return vector_of


def mixed(bits: Number) -> Number:
    """`randomness._mix` of one 64-bit integer or a vector of them."""
    bits = (bits ^ (bits >> 30)) * FIRST
    bits = (bits ^ (bits >> 27)) * SECOND
    return bits ^ (bits >> 31)


def folded(key: Number, value: Number) -> Number:
    """`randomness.fold` continued by one more integer."""
    return mixed(key + GAMMA + value)


def times(x: torch.Tensor, samples: torch.Tensor, keys: Sequence[randomness.Key], p: float) -> torch.Tensor:
    """x (n, ...) times a mask (n, columns) of `scaled`; of several runs, with as many keys, (runs, n, ...).

    The compiled operator keeps nothing for the backward pass, which draws the mask again.
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
        _call("write_masks", samples, [key], p, out=mask)
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
        _call("write_products", samples, keys, p, out=out, values=rows)
        return out.view_as(x)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _Times.apply(cotangent.contiguous(), *ctx.saved_tensors, *ctx.drawn), None, None, None


def _compiled(samples: torch.Tensor, dtype: torch.dtype) -> bool:
    return samples.is_cpu and dtype in (torch.float32, torch.float64)


def _call(
    function: str, samples: torch.Tensor, keys: Sequence[int], p: float, out: torch.Tensor, **values: Any
) -> None:
    """Call a function that draws masks.

    samples: int64 (n,), or (runs, n). keys: of each run. out: (..., columns), whole vectors.
    """
    samples, rows, vectors = samples.contiguous(), samples.shape[-1], out.shape[-1] // LANES
    signed = array("q", map(randomness.signed, keys))
    # fmt: off
    _kernel(out.dtype).run(
        function, threads_for(len(keys) * rows, len(keys) * rows * vectors, VECTORS_PER_THREAD),
        runs=len(keys), rows=rows, vectors=vectors, chunk_rows=max(1, CHUNK_VECTORS // vectors),
        threshold=randomness.least(p), samples=samples, keys=signed.buffer_info()[0],
        scale=1 / (1 - p), out=out, **values,
    )
    # fmt: on


# What a thread takes at a time; and with fewer for each, more threads cost more than they save.
CHUNK_VECTORS = 1024
VECTORS_PER_THREAD = 4096


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    functions = write_masks, write_products
    return Kernel(functions, ARGUMENTS, dtype, LANES, sources=(randomness,))
