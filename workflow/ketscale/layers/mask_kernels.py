"""The compiled code of dropout masks, for `masks` and `dense`: the numbers of `randomness.kept`, scaled.

The lanes of a vector hold columns. A mixed word gives four of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from ketscale.engines.compiled.language import (
    I16,
    I64,
    INTEGER,
    REAL,
    Arguments,
    Code,
    Number,
    ceil_divided,
    chunk,
    integers,
    select,
    vectors,
)
from ketscale.layers.randomness import FIRST, GAMMA, SECOND

LANES = 16
# What masks are drawn from; each run has as many rows. A thread takes so many rows at a time.
DRAWN = {
    "runs rows vectors chunk_rows threshold": INTEGER,
    "samples": integers("all_rows"),
    "keys": integers("runs"),
    "scale": REAL,
}
ARGUMENTS = {**DRAWN, "out values": vectors("all_rows", "vectors")}


class Mask(NamedTuple):
    """A vector of a mask: its run, its row among those of all runs, and its place in the row."""

    run: Number
    row: Number
    vector: Number
    values: Number


def draw(k: Code, args: Arguments) -> None:
    """out <- mask."""
    with each_mask(k, args) as mask:
        args.out[mask.row, mask.vector] = mask.values


def apply(k: Code, args: Arguments) -> None:
    """out <- values * mask."""
    with each_mask(k, args) as mask:
        args.out[mask.row, mask.vector] = args.values[mask.row, mask.vector] * mask.values


@contextmanager
def each_mask(k: Code, args: Arguments) -> Iterator[Mask]:
    """Write the body for each vector of the masks that are drawn from `args`; threads share the rows."""
    words = LANES // 4
    least, scale = args.threshold.truncated(I16).splat(), args.scale.splat()
    steps = k.constant([(1 + word) * GAMMA for word in range(words)], ir.VectorType(I64, words))
    every = args.runs * args.rows
    with k.tasks(ceil_divided(every, args.chunk_rows)) as number:
        first, count = chunk(number, args.chunk_rows, every)
        with k.loop(count) as own:
            row = first + own
            run = row // args.rows
            start = mixed(args.samples[row] * GAMMA + args.keys[run])
            with k.loop(args.vectors) as vector:
                word = (start + vector * (words * GAMMA)).splat(words) + steps
                bits = mixed(word).bits(I16, LANES)
                yield Mask(run, row, vector, select(bits.signed >= least, scale, 0.0))


def mixed(bits: Number) -> Number:
    """`randomness._mix` of one 64-bit integer or a vector of them."""
    bits = (bits ^ (bits >> 30)) * FIRST
    bits = (bits ^ (bits >> 27)) * SECOND
    return bits ^ (bits >> 31)
