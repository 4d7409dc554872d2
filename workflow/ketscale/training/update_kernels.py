"""Writes the machine code of a training step's last part, for `updates`: the norms of gradients, and Adam.

A row is a whole number of vectors, aligned to them. Its results do not depend on the other rows, on the width of the
processor's vectors or on the number of threads.
"""

from __future__ import annotations

from llvmlite import ir

from ketscale.engines.compiled.vector import Value, Writer

NORMS = ("gradients", "rows", "vectors", "norms")  # norms: (rows,)
ADAM = (
    "values", "gradients", "means", "squares",  # (rows, vectors)
    "vectors",  # of a row
    "norms",  # (rows,)
    "settings",  # (rows, len(SETTINGS)) doubles
    "chunks",  # of a row
    "all_chunks",
    "next_chunk",  # counter, 0 at the start
)  # fmt: skip
# rate and root have the corrections of the bias: rate / (1 - keep_mean^step) and 1 / sqrt(1 - keep_square^step).
SETTINGS = ("limit", "decay", "keep_mean", "keep_square", "rate", "root", "epsilon")
# Of a row, what a thread updates at a time.
CHUNK_VECTORS = 512
# Added to the norm that a gradient is clipped by, as in torch.nn.utils.clip_grad_norm_.
TINY = 1e-6
DOUBLE = ir.DoubleType()


def lanes(double: bool) -> int:
    """Numbers in a vector, of 64 bytes."""
    return 8 if double else 16


def module() -> ir.Module:
    """The functions `norms` and `adam` of either precision, which take the address of their arguments."""
    written = ir.Module("ketscale_updates")
    for double in (False, True):
        precision = "double" if double else "single"
        _norms(Writer(written, f"norms_{precision}", lanes(double), double))
        _adam(Writer(written, f"adam_{precision}", lanes(double), double))
    return written


def _norms(w: Writer) -> None:
    """The norm of each row, from squares in double precision."""
    b, wide = w.b, ir.VectorType(DOUBLE, w.lanes)
    gradients, norms = (w.argument(NORMS.index(name), pointer=True) for name in ("gradients", "norms"))
    rows, vectors = (w.argument(NORMS.index(name)) for name in ("rows", "vectors"))
    sums = b.alloca(wide)
    sums.align = 64
    with w.loop(rows) as row:
        b.store(ir.Constant(wide, [0.0] * w.lanes), sums)
        with w.loop(vectors) as vector:
            numbers = w.load(w.at(gradients, b.mul(row, vectors), vector))
            if w.bytes == 4:
                numbers = b.fpext(numbers, wide)
            b.store(b.fadd(b.load(sums, typ=wide), b.fmul(numbers, numbers)), sums)
        parts = b.load(sums, typ=wide)
        total = b.extract_element(parts, w.integer(0))
        for lane in range(1, w.lanes):
            total = b.fadd(total, b.extract_element(parts, w.integer(lane)))
        norm = b.call(b.module.declare_intrinsic("llvm.sqrt", [DOUBLE]), [total])
        b.store(norm if w.bytes == 8 else b.fptrunc(norm, w.real), w.element(norms, row), align=w.bytes)
    b.ret_void()


def _adam(w: Writer) -> None:
    """Kingma and Ba, arXiv 1412.6980."""
    b = w.b
    rows = [w.argument(slot, pointer=True) for slot in range(4)]
    norms, settings = (w.argument(ADAM.index(name), pointer=True) for name in ("norms", "settings"))
    vectors, chunks, all_chunks = (
        w.argument(ADAM.index(name)) for name in ("vectors", "chunks", "all_chunks")
    )
    size = w.integer(CHUNK_VECTORS)
    with w.taken(w.argument_address(ADAM.index("next_chunk")), all_chunks) as chunk:
        row = b.udiv(chunk, chunks)

        def setting(name: str) -> Value:
            place = b.add(b.mul(row, w.integer(len(SETTINGS))), w.integer(SETTINGS.index(name)))
            return b.load(w.element(settings, place, DOUBLE), typ=DOUBLE)

        def every(number: Value) -> Value:
            return w.splat(number if w.bytes == 8 else b.fptrunc(number, w.real))

        norm = w.load_real(w.element(norms, row))
        norm = norm if w.bytes == 8 else b.fpext(norm, DOUBLE)
        fits = b.fdiv(setting("limit"), b.fadd(norm, ir.Constant(DOUBLE, TINY)))
        unit = ir.Constant(DOUBLE, 1.0)
        scale = every(b.select(b.fcmp_ordered(">", fits, unit), unit, fits))
        decay, keep_square, rate, root, epsilon = (
            every(setting(name)) for name in ("decay", "keep_square", "rate", "root", "epsilon")
        )
        # In single precision 1 - 0.999 would be wrong by 1e-5 of it.
        take_mean, take_square = (every(b.fsub(unit, setting(name))) for name in ("keep_mean", "keep_square"))
        first = b.mul(b.urem(chunk, chunks), size)
        left = b.sub(vectors, first)
        begin = b.add(b.mul(row, vectors), first)
        with w.loop(b.select(b.icmp_unsigned("<", size, left), size, left)) as index:
            places = [w.at(base, b.add(begin, index)) for base in rows]
            value, gradient, mean, square = map(w.load, places)
            gradient = w.fma(decay, value, b.fmul(gradient, scale))
            mean = w.fma(take_mean, b.fsub(gradient, mean), mean)
            square = w.fma(take_square, b.fmul(gradient, gradient), b.fmul(keep_square, square))
            height = w.fma(w.sqrt(square), root, epsilon)
            w.store(w.fma(rate, b.fdiv(mean, height), value, negate=True), places[0])
            w.store(mean, places[2])
            w.store(square, places[3])
