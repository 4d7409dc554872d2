"""Writes the machine code of a summed cross-entropy and its gradient, for `cross_entropy`.

The lanes of a vector hold samples.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from ketscale.engines.compiled.vector import I64, Value, Writer

ARGUMENTS = (
    "runs", "rows", "classes",
    "logits", "gradient",  # (runs, rows, classes)
    "labels",  # (runs, rows) int64
    "sums",  # (runs,)
)  # fmt: skip
LANES = 16


def module() -> ir.Module:
    """The functions `single` and `double`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_cross_entropy")
    for name in ("single", "double"):
        _write(Writer(written, name, LANES, double=name == "double"))
    return written


def _write(w: Writer) -> None:
    """sums <- sum of log(sum(exp(logits))) - the label's logit; gradient <- softmax(logits) - 1 at the label."""
    b = w.b
    runs, rows, classes = (w.argument(ARGUMENTS.index(name)) for name in ("runs", "rows", "classes"))
    logits, gradient, labels, sums = (
        w.argument(ARGUMENTS.index(name), pointer=True) for name in ("logits", "gradient", "labels", "sums")
    )
    zero, one, nan = (w.constant(number) for number in (0.0, 1.0, float("nan")))
    total, highest, weight, own, spoilt = (_variable(w) for _ in range(5))
    groups = b.udiv(b.add(rows, w.integer(LANES - 1)), w.integer(LANES))
    with w.loop(runs) as run:
        w.store(zero, total)
        with w.loop(groups) as group:
            first = b.mul(group, w.integer(LANES))
            lanes = [b.add(first, w.integer(lane)) for lane in range(LANES)]
            inside = [b.icmp_unsigned("<", lane, rows) for lane in lanes]
            # Lanes beyond the last row repeat it, and do not count.
            last = b.sub(rows, w.integer(1))
            numbers = [
                b.add(b.mul(run, rows), b.select(is_in, lane, last))
                for lane, is_in in zip(lanes, inside, strict=True)
            ]
            starts = [b.mul(number, classes) for number in numbers]
            named = [b.load(w.element(labels, number, I64), typ=I64) for number in numbers]
            w.store(w.constant(float("-inf")), highest)
            w.store(zero, weight)
            w.store(zero, own)
            w.store(zero, spoilt)
            with w.loop(classes) as index:
                value = _gathered(w, logits, starts, index)
                most = w.load(highest)
                w.store(b.select(b.fcmp_ordered(">", value, most), value, most), highest)
                # `exp` and the comparison above do not pass these on.
                undefined = b.fcmp_unordered("==", value, w.constant(float("inf")))
                w.store(b.select(undefined, nan, w.load(spoilt)), spoilt)
            nowhere = b.fcmp_ordered("==", w.load(highest), w.constant(float("-inf")))
            w.store(b.select(nowhere, nan, w.load(spoilt)), spoilt)
            with w.loop(classes) as index:
                value = b.fsub(_gathered(w, logits, starts, index), w.load(highest))
                w.store(b.fadd(w.load(weight), w.exp(value)), weight)
                here = _vector(w, [b.icmp_signed("==", index, label) for label in named], ir.IntType(1))
                w.store(b.select(here, value, w.load(own)), own)
            loss = b.fadd(b.fsub(w.log(w.load(weight)), w.load(own)), w.load(spoilt))
            counted = b.select(_vector(w, inside, ir.IntType(1)), loss, zero)
            w.store(b.fadd(w.load(total), counted), total)
            share = b.fdiv(one, w.load(weight))
            with w.loop(classes) as index:
                value = w.exp(b.fsub(_gathered(w, logits, starts, index), w.load(highest)))
                here = _vector(w, [b.icmp_signed("==", index, label) for label in named], ir.IntType(1))
                value = w.fma(value, share, b.select(here, b.fsub(w.load(spoilt), one), w.load(spoilt)))
                for lane, start in enumerate(starts):
                    part = b.extract_element(value, w.integer(lane))
                    b.store(part, w.element(gradient, b.add(start, index)), align=w.bytes)
        summed = b.extract_element(w.sum_lanes(w.load(total), LANES), w.integer(0))
        b.store(summed, w.element(sums, run), align=w.bytes)
    b.ret_void()


def _variable(w: Writer) -> Value:
    """A vector's place in memory that is the function's own."""
    place = w.b.alloca(w.vector)
    place.align = w.bytes * w.lanes
    return place


def _gathered(w: Writer, base: Value, starts: Sequence[Value], index: Value) -> Value:
    """Lane i is the float number starts[i] + index after `base`."""
    return _vector(w, [w.load_real(w.element(base, w.b.add(start, index))) for start in starts], w.real)


def _vector(w: Writer, scalars: Sequence[Value], typ: ir.Type) -> Value:
    vector: Value = ir.Constant(ir.VectorType(typ, len(scalars)), ir.Undefined)
    for lane, scalar in enumerate(scalars):
        vector = w.b.insert_element(vector, scalar, w.integer(lane))
    return vector
