"""Writes the machine code of a hidden layer behind its matrix product, for `dense`.

The lanes of a vector hold columns.
"""

from __future__ import annotations

from llvmlite import ir

from ketscale.engines.compiled.vector import Writer
from ketscale.layers.mask_kernels import DRAWN, LANES, each_mask

# values: (runs, rows, vectors), changed in place. bias: (runs, vectors), so many numbers apart.
FORWARD = ("values", "bias", "apart", *DRAWN)
# cotangent: as the values, changed in place. to_bias: as the bias. Nothing is drawn.
BACKWARD = ("cotangent", "values", "to_bias", "apart", *DRAWN)


def module() -> ir.Module:
    """The functions `forward` and `backward` of either precision, which take the address of their arguments."""
    written = ir.Module("ketscale_dense")
    for double in (False, True):
        precision = "double" if double else "single"
        _forward(Writer(written, f"forward_{precision}", LANES, double))
        _backward(Writer(written, f"backward_{precision}", LANES, double))
    return written


def _forward(w: Writer) -> None:
    """values <- mask * relu(values + bias), which leaves a NaN one."""
    b = w.b
    values, bias = (w.argument(FORWARD.index(name), pointer=True) for name in ("values", "bias"))
    vectors, apart = (w.argument(FORWARD.index(name)) for name in ("vectors", "apart"))
    zero = w.constant(0.0)
    with each_mask(w, FORWARD) as mask:
        place = w.at(values, b.mul(mask.row, vectors), mask.vector)
        own_bias = w.at(w.element(bias, b.mul(mask.run, apart)), mask.vector)
        value = b.fadd(w.load(place, w.bytes), w.load(own_bias, w.bytes))
        positive = b.select(b.fcmp_ordered("<", value, zero), zero, value)
        w.store(b.fmul(positive, mask.values), place, w.bytes)


def _backward(w: Writer) -> None:
    """cotangent <- its part by the values before the bias; to_bias <- the sum over the rows."""
    b = w.b
    cotangent, values, to_bias = (w.argument(slot, pointer=True) for slot in range(3))
    runs, rows, vectors, apart = (
        w.argument(BACKWARD.index(name)) for name in ("runs", "rows", "vectors", "apart")
    )
    scale = w.load_splat(w.argument_address(BACKWARD.index("scale")))
    zero = w.constant(0.0)
    total = b.alloca(w.vector)
    total.align = w.bytes * w.lanes
    counter = w.argument_address(BACKWARD.index("next_chunk"))
    # Threads share the columns.
    with w.taken(counter, b.mul(runs, vectors)) as column:
        run, vector = b.udiv(column, vectors), b.urem(column, vectors)
        w.store(zero, total)
        with w.loop(rows) as row:
            place = b.mul(b.add(b.mul(run, rows), row), vectors)
            address = w.at(cotangent, place, vector)
            # Where a value is not positive, its unit was off or its mask was 0.
            off = b.fcmp_ordered("<=", w.load(w.at(values, place, vector), w.bytes), zero)
            part = b.select(off, zero, b.fmul(w.load(address, w.bytes), scale))
            w.store(part, address, w.bytes)
            w.store(b.fadd(w.load(total), part), total)
        w.store(w.load(total), w.at(w.element(to_bias, b.mul(run, apart)), vector), w.bytes)
