"""Writes the machine code of dropout masks, for `masks` and `dense`: the numbers of `randomness.kept`, scaled.

The lanes of a vector hold columns. A mixed word gives four of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from ketscale.engines.compiled.vector import I64, Value, Writer
from ketscale.problems.randomness import FIRST, GAMMA, SECOND, signed

# What masks are drawn from, among the arguments of a function; each run has as many rows.
DRAWN = (
    "runs", "rows", "vectors",  # of a row
    "samples",  # (runs, rows) int64
    "keys",  # (runs,) int64
    "threshold",  # int16
    "scale",  # a float in its first bytes
)  # fmt: skip
ARGUMENTS = ("out", *DRAWN)  # out: (runs, rows, vectors)
LANES = 16


class Mask(NamedTuple):
    """A vector of a mask that is being written: its run, its row among those of all runs, and its place in the row."""

    run: Value
    row: Value
    vector: Value
    values: Value


def module() -> ir.Module:
    """The functions `single` and `double`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_masks")
    for name in ("single", "double"):
        w = Writer(written, name, LANES, double=name == "double")
        out = w.argument(ARGUMENTS.index("out"), pointer=True)
        vectors = w.argument(ARGUMENTS.index("vectors"))
        with each_mask(w, ARGUMENTS) as mask:
            place = w.at(out, w.b.mul(mask.row, vectors), mask.vector)
            w.store(mask.values, place, w.bytes)
        w.b.ret_void()
    return written


@contextmanager
def each_mask(w: Writer, arguments: Sequence[str]) -> Iterator[Mask]:
    """Write the body for each vector of the masks that are drawn from `arguments`, which have those of `DRAWN`."""
    b = w.b
    words, shorts = ir.VectorType(I64, LANES // 4), ir.VectorType(ir.IntType(16), LANES)
    samples, keys = (w.argument(arguments.index(name), pointer=True) for name in ("samples", "keys"))
    runs, rows, vectors, threshold = (
        w.argument(arguments.index(name)) for name in ("runs", "rows", "vectors", "threshold")
    )
    least = _splat(w, b.trunc(threshold, shorts.element), shorts)
    scale = w.load_splat(w.argument_address(arguments.index("scale")))
    offsets = ir.Constant(words, [signed((1 + word) * GAMMA) for word in range(words.count)])
    with w.loop(runs) as run:
        key = b.load(w.element(keys, run, I64), typ=I64)
        with w.loop(rows) as own:
            row = b.add(b.mul(run, rows), own)
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
