"""Dropout masks, scaled: compiled on a CPU, where a mask by torch's operators takes longer than a small layer.

The compiled code draws the numbers of `randomness.keep_mask`: a mixed word gives four of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cache

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
# rows: of each run. chunk_rows: a thread computes so many rows at a time.
ARGUMENTS = {
    "runs rows vectors chunk_rows threshold": INTEGER,
    "samples": integers("all_rows"),
    "keys": integers("runs"),
    "scale": REAL,
    "out": vectors("all_rows", "vectors"),
}


def write_masks(k: FunctionCode, args: Arguments) -> None:
    """out <- each row's mask."""
    every = args.runs * args.rows
    with k.tasks(ceil_divided(every, args.chunk_rows)) as number:
        first, count = chunk(number, args.chunk_rows, every)
        with k.loop(count) as own:
            row = first + own
            key = args.keys[row // args.rows]
            mask = row_of_mask(k, args.samples[row], key, args.threshold, args.scale)
            with k.loop(args.vectors) as vector:
                args.out[row, vector] = mask(vector)


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


def scaled(
    keys: Sequence[randomness.Key], samples: torch.Tensor, columns: int, p: float, dtype: torch.dtype
) -> torch.Tensor:
    """`randomness.keep_mask` times 1 / (1 - p), (*samples.shape, columns): the same on every device.

    samples: int64 (n,), or (runs, n). keys: of each run.
    """
    numbers = array("q", [randomness.signed(key) for key in keys if isinstance(key, int)])
    if not samples.is_cpu or dtype not in (torch.float32, torch.float64) or len(numbers) < len(keys):
        rows = zip(keys, samples.view(len(keys), -1), strict=True)
        keep = torch.cat([randomness.keep_mask(key, own, columns, p) for key, own in rows])
        return keep.to(dtype).mul_(1 / (1 - p)).view(*samples.shape, columns)
    vectors = -(-columns // LANES)
    mask, samples = torch.empty(*samples.shape, vectors * LANES, dtype=dtype), samples.contiguous()
    if mask.numel():
        # fmt: off
        _kernel(dtype).run(
            "write_masks", threads_for(samples.numel(), samples.numel() * vectors, VECTORS_PER_THREAD),
            runs=len(keys), rows=samples.shape[-1], vectors=vectors, chunk_rows=max(1, CHUNK_VECTORS // vectors),
            threshold=randomness.least(p), samples=samples, keys=numbers.buffer_info()[0],
            scale=1 / (1 - p), out=mask,
        )
        # fmt: on
    return mask[..., :columns]


# What a thread takes at a time; and with fewer for each, more threads cost more than they save.
CHUNK_VECTORS = 1024
VECTORS_PER_THREAD = 4096


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    return Kernel((write_masks,), ARGUMENTS, dtype, LANES, sources=(randomness,))
