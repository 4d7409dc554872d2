"""Writes the machine code of dropout masks, for `masks`: the numbers of `randomness.kept`, scaled.

The lanes of a vector hold columns. A mixed word gives four of them.
"""

from __future__ import annotations

from llvmlite import ir

from ketscale.engines.compiled.vector import I64, Value, Writer
from ketscale.problems.randomness import FIRST, GAMMA, SECOND, signed

ARGUMENTS = (
    "out",  # (rows, vectors of a row)
    "samples",  # (rows,) int64
    "rows", "vectors", "key",
    "threshold",  # int16
    "scale",  # a float in its first bytes
)  # fmt: skip
LANES = 16


def module() -> ir.Module:
    """The functions `single` and `double`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_masks")
    _write(Writer(written, "single", LANES, double=False))
    _write(Writer(written, "double", LANES, double=True))
    return written


def _write(w: Writer) -> None:
    b = w.b
    words, shorts = ir.VectorType(I64, LANES // 4), ir.VectorType(ir.IntType(16), LANES)
    out, samples = (w.argument(ARGUMENTS.index(name), True) for name in ("out", "samples"))
    rows, vectors, key, threshold = (
        w.argument(ARGUMENTS.index(name)) for name in ("rows", "vectors", "key", "threshold")
    )
    least = _splat(w, b.trunc(threshold, shorts.element), shorts)
    scale = w.load_splat(w.argument_address(ARGUMENTS.index("scale")))
    offsets = ir.Constant(words, [signed((1 + word) * GAMMA) for word in range(words.count)])
    with w.loop(rows) as row:
        sample = b.load(w.element(samples, row, I64), typ=I64)
        start = _mixed(w, b.add(b.mul(sample, w.integer(signed(GAMMA))), key))
        with w.loop(vectors) as vector:
            first = b.add(start, b.mul(vector, w.integer(signed(words.count * GAMMA))))
            bits = b.bitcast(_mixed(w, b.add(_splat(w, first, words), offsets)), shorts)
            mask = b.select(b.icmp_signed(">=", bits, least), scale, w.constant(0.0))
            w.store(mask, w.at(out, b.mul(row, vectors), vector), w.bytes)
    b.ret_void()


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
