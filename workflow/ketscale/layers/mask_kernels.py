"""Writes the machine code of dropout masks, for `masks` and `dense`: the numbers of `randomness.kept`, scaled.

The lanes of a vector hold columns. A mixed word gives four of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from ketscale.engines.compiled.vector import I64, Value, Writer
from ketscale.layers.randomness import FIRST, GAMMA, SECOND, signed

# What masks are drawn from, among the arguments of a function; each run has as many rows.
DRAWN = (
    "runs", "rows", "vectors",  # of a row
    "samples",  # (runs, rows) int64
    "keys",  # (runs,) int64
    "threshold",  # int16
    "chunk_rows",  # that a thread takes at a time
    "next_chunk",  # counter, 0 at the start
    "scale",  # a float in its first bytes
)  # fmt: skip
# (runs, rows, vectors)
DRAW = ("out", *DRAWN)
APPLY = ("out", "values", *DRAWN)
LANES = 16


class Mask(NamedTuple):
    """A vector of a mask that is being written: its run, its row among those of all runs, and its place in the row."""

    run: Value
    row: Value
    vector: Value
    values: Value


def module() -> ir.Module:
    """The functions `draw` and `apply` of either precision, which take the address of `DRAW` and `APPLY`."""
    written = ir.Module("ketscale_masks")
    for double in (False, True):
        precision = "double" if double else "single"
        for name, arguments in (("draw", DRAW), ("apply", APPLY)):
            w = Writer(written, f"{name}_{precision}", LANES, double)
            buffers = [w.argument(slot, pointer=True) for slot in range(len(arguments) - len(DRAWN))]
            vectors = w.argument(arguments.index("vectors"))
            with each_mask(w, arguments) as mask:
                out, *values = (w.at(buffer, w.b.mul(mask.row, vectors), mask.vector) for buffer in buffers)
                result = w.b.fmul(w.load(values[0], w.bytes), mask.values) if values else mask.values
                w.store(result, out, w.bytes)
    return written


@contextmanager
def each_mask(w: Writer, arguments: Sequence[str]) -> Iterator[Mask]:
    """Write the body for each vector of the masks that are drawn from `arguments`, which have those of `DRAWN`.

    It ends the function, whose threads share the rows.
    """
    b = w.b
    words, shorts = ir.VectorType(I64, LANES // 4), ir.VectorType(ir.IntType(16), LANES)
    samples, keys = (w.argument(arguments.index(name), pointer=True) for name in ("samples", "keys"))
    runs, rows, vectors, threshold, chunk_rows = (
        w.argument(arguments.index(name)) for name in ("runs", "rows", "vectors", "threshold", "chunk_rows")
    )
    least = _splat(w, b.trunc(threshold, shorts.element), shorts)
    scale = w.load_splat(w.argument_address(arguments.index("scale")))
    offsets = ir.Constant(words, [signed((1 + word) * GAMMA) for word in range(words.count)])
    every = b.mul(runs, rows)
    chunks = b.udiv(b.add(every, b.sub(chunk_rows, w.integer(1))), chunk_rows)
    with w.taken(w.argument_address(arguments.index("next_chunk")), chunks) as chunk:
        first_row = b.mul(chunk, chunk_rows)
        left = b.sub(every, first_row)
        with w.loop(b.select(b.icmp_unsigned("<", chunk_rows, left), chunk_rows, left)) as own:
            row = b.add(first_row, own)
            run = b.udiv(row, rows)
            key = b.load(w.element(keys, run, I64), typ=I64)
            sample = b.load(w.element(samples, row, I64), typ=I64)
            start = _mixed(w, b.add(b.mul(sample, w.integer(signed(GAMMA))), key))
            with w.loop(vectors) as vector:
                first = b.add(start, b.mul(vector, w.integer(signed(words.count * GAMMA))))
                bits = b.bitcast(_mixed(w, b.add(_splat(w, first, words), offsets)), shorts)
                values = b.select(b.icmp_signed(">=", bits, least), scale, w.constant(0.0))
                yield Mask(run, row, vector, values)


def _mixed(w: Writer, bits: Value) -> Value:
    """`randomness._mix` of one 64-bit integer or a vector of them."""

    def constant(value: int) -> Value:
        count = getattr(bits.type, "count", 0)
        return ir.Constant(bits.type, [signed(value)] * count if count else signed(value))

    b = w.b
    bits = b.mul(b.xor(bits, b.lshr(bits, constant(30))), constant(FIRST))
    bits = b.mul(b.xor(bits, b.lshr(bits, constant(27))), constant(SECOND))
    return b.xor(bits, b.lshr(bits, constant(31)))


def _splat(w: Writer, scalar: Value, typ: ir.VectorType) -> Value:
    one = w.b.insert_element(ir.Constant(typ, ir.Undefined), scalar, w.integer(0))
    nowhere = ir.Constant(ir.VectorType(ir.IntType(32), typ.count), [0] * typ.count)
    return w.b.shuffle_vector(one, ir.Constant(typ, ir.Undefined), nowhere)
