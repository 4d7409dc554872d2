"""A writer of LLVM code over vectors of floats: loops, loads, fused multiply-adds, sine, cosine, exponential, logarithm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

Value = Any  # of llvmlite.ir, which has no types

I64, I32, I8, BIT = ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.IntType(1)
POINTER = ir.PointerType()


class SinCos(NamedTuple):
    """The constants of `Writer.sincos` for one precision.

    magic: 1.5 * 2**(bits of the mantissa): adding it rounds to an integer.
    half_pi: pi/2 in parts, largest first (Cody and Waite's argument reduction).
    sin, cos: coefficients of x**2, highest power first (Cephes, S. Moshier: |error| about 1 ulp).
    """

    integer: ir.IntType
    magic: float
    half_pi: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]


SINGLE = SinCos(
    I32,
    12582912.0,
    (1.57079637050628662109375, -4.37113900018624283e-8, 1.7151245100058e-15),
    (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
)
DOUBLE = SinCos(
    I64,
    6755399441055744.0,
    (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
    (
        1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
        -1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1,
    ),
    (
        -1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7,
        2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2,
    ),
)  # fmt: skip


class Exp(NamedTuple):
    """The constants of `Writer.exp` for one precision.

    mantissa: its number of bits. ln2: ln 2 in two parts, the larger one with few bits (Cody and Waite's argument
    reduction). degree: of the Taylor polynomial. lowest, highest: the range of x whose result is a normal number.
    """

    mantissa: int
    ln2: tuple[float, float]
    degree: int
    lowest: float
    highest: float


EXP_SINGLE = Exp(23, (0.693359375, -2.12194440e-4), 7, -87.0, 88.0)
EXP_DOUBLE = Exp(52, (6.93147180369123816490e-01, 1.90821492927058770002e-10), 13, -708.0, 709.0)


class Log(NamedTuple):
    """The constants of `Writer.log` for one precision.

    least: the bits of sqrt(1/2), the least mantissa. terms: of the series, besides the first.
    """

    least: int
    terms: int


LOG_SINGLE = Log(0x3F3504F3, 5)
LOG_DOUBLE = Log(0x3FE6A09E667F3BCD, 10)


class Writer:
    """Writes one function over vectors of `lanes` floats; buffers are pointers to floats, aligned to a vector.

    double: 64-bit floats instead of 32-bit ones.
    """

    def __init__(self, module: ir.Module, name: str, lanes: int, double: bool) -> None:
        self.module = module
        self.lanes = lanes
        self.real = ir.DoubleType() if double else ir.FloatType()
        self.vector = ir.VectorType(self.real, lanes)
        self.constants = DOUBLE if double else SINGLE
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), name)
        self.arguments = self.function.args[0]
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    # --- integers, control flow ---

    def integer(self, value: int) -> Value:
        """A 64-bit constant."""
        return ir.Constant(I64, value)

    def argument(self, slot: int, pointer: bool = False) -> Value:
        """Entry `slot` of the array of 64-bit arguments."""
        return self.b.load(self.argument_address(slot), typ=POINTER if pointer else I64)

    def argument_address(self, slot: int) -> Value:
        """The address of that entry."""
        return self.b.gep(self.arguments, [self.integer(slot)], source_etype=I64)

    @contextmanager
    def loop(self, count: Value | int) -> Iterator[Value]:
        """Write the body for an index from 0 to count - 1; count is at least 1."""
        count = self.integer(count) if isinstance(count, int) else count
        before, body = self.b.block, self.b.append_basic_block("loop")
        self.b.branch(body)
        self.b.position_at_end(body)
        index = self.b.phi(I64)
        index.add_incoming(self.integer(0), before)
        yield index
        following = self.b.add(index, self.integer(1))
        index.add_incoming(following, self.b.block)
        after = self.b.append_basic_block("after")
        self.b.cbranch(self.b.icmp_unsigned("<", following, count), body, after)
        self.b.position_at_end(after)

    @contextmanager
    def taken(self, counter: Value, count: Value) -> Iterator[Value]:
        """Write the body for an index from 0 to count - 1, of which threads take one after the other; ends the function.

        counter: the address of an integer that is 0 at the start.
        """
        b = self.b
        test, body, done = (b.append_basic_block(name) for name in ("take", "taken", "done"))
        b.branch(test)
        b.position_at_end(test)
        index = b.atomic_rmw("add", counter, self.integer(1), "monotonic")
        b.cbranch(b.icmp_unsigned("<", index, count), body, done)
        b.position_at_end(body)
        yield index
        b.branch(test)
        b.position_at_end(done)
        b.ret_void()

    def parity(self, index: Value, mask: int) -> Value:
        """1 where an odd number of the bits of `mask` is set in the 64-bit `index`, else 0."""
        bits = self.b.and_(index, self.integer(mask))
        if mask.bit_count() > 1:
            bits = self.b.ctpop(bits)
            return self.b.and_(bits, self.integer(1))
        return self.b.lshr(bits, self.integer(mask.bit_length() - 1))

    # --- memory ---

    def deposit(self, index: Value, pivots: Sequence[int]) -> Value:
        """`index` with a 0 inserted at each of the ascending bit positions `pivots`."""
        for pivot in pivots:
            low = self.b.and_(index, self.integer((1 << pivot) - 1))
            index = self.b.or_(
                self.b.shl(self.b.lshr(index, self.integer(pivot)), self.integer(pivot + 1)), low
            )
        return index

    def at(self, base: Value, *vectors: Value | int) -> Value:
        """The address that is the sum of `vectors` vectors after `base`."""
        for offset in vectors:
            offset = self.integer(offset) if isinstance(offset, int) else offset
            base = self.b.gep(base, [offset], source_etype=self.vector)
        return base

    def element(self, base: Value, index: Value | int, typ: Any = None) -> Value:
        """The address of float (or `typ`) number `index` after `base`."""
        index = self.integer(index) if isinstance(index, int) else index
        return self.b.gep(base, [index], source_etype=typ or self.real)

    def load(self, address: Value, align: int | None = None) -> Value:
        """The vector at an address, aligned to its size unless told otherwise."""
        return self.b.load(address, typ=self.vector, align=align or self.lanes * self.bytes)

    def store(self, vector: Value, address: Value, align: int | None = None) -> None:
        """Store a vector, aligned to its size unless told otherwise."""
        self.b.store(vector, address, align=align or self.lanes * self.bytes)

    def table(self, name: str, typ: ir.Type, values: Sequence[float]) -> Value:
        """A constant array; an equal name within a function must mean equal values."""
        full = f"{self.function.name}.{name}"
        if full in self.module.globals:
            return self.module.globals[full]
        array = ir.ArrayType(typ, len(values))
        variable = ir.GlobalVariable(self.module, array, full)
        variable.linkage, variable.global_constant = "internal", True
        variable.initializer = ir.Constant(array, list(values))
        return variable

    def load_real(self, address: Value) -> Value:
        """The float at an address."""
        return self.b.load(address, typ=self.real, align=self.bytes)

    def load_splat(self, address: Value) -> Value:
        """The float at an address in every lane."""
        return self.splat(self.load_real(address))

    @property
    def bytes(self) -> int:
        """Size of a float."""
        return 8 if isinstance(self.real, ir.DoubleType) else 4

    # --- vectors ---

    def splat(self, scalar: Value) -> Value:
        """A float in every lane."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        return self.shuffle(self.b.insert_element(undefined, scalar, ir.Constant(I32, 0)), [0] * self.lanes)

    def constant(self, values: float | Sequence[float]) -> Value:
        """A constant vector: one value for all lanes or one for each."""
        values = [values] * self.lanes if isinstance(values, (int, float)) else values
        return ir.Constant(self.vector, [ir.Constant(self.real, float(v)) for v in values])

    def shuffle(self, vector: Value, sources: Sequence[int], other: Value | None = None) -> Value:
        """Lane i of the result is lane sources[i] of `vector`; the lanes of `other` are numbered after its lanes."""
        if list(sources) == list(range(self.lanes)):
            return vector
        mask = ir.Constant(ir.VectorType(I32, len(sources)), list(sources))
        return self.b.shuffle_vector(vector, other or ir.Constant(vector.type, ir.Undefined), mask)

    def fma(self, a: Value, b: Value, c: Value | None, negate: bool = False) -> Value:
        """a * b + c, or c - a * b with `negate`; a * b alone without c."""
        if c is None:
            product = self.b.fmul(a, b)
            return self.b.fneg(product) if negate else product
        return self._intrinsic("fma", self.b.fneg(a) if negate else a, b, c)

    def sqrt(self, x: Value) -> Value:
        """Square root."""
        return self._intrinsic("sqrt", x)

    def _intrinsic(self, name: str, *vectors: Value) -> Value:
        full = f"llvm.{name}.v{self.lanes}f{8 * self.bytes}"
        function = self.module.globals.get(full)
        if function is None:
            function = ir.Function(
                self.module, ir.FunctionType(self.vector, [self.vector] * len(vectors)), full
            )
        return self.b.call(function, vectors)

    def sum_lanes(self, vector: Value, group: int) -> Value:
        """The sum over each `group` (a power of 2) of neighbouring lanes, in all of them."""
        distance = 1
        while distance < group:
            vector = self.b.fadd(
                vector, self.shuffle(vector, [lane ^ distance for lane in range(self.lanes)])
            )
            distance *= 2
        return vector

    def sincos(self, x: Value) -> tuple[Value, Value]:
        """Sine and cosine of the angles `x` in radians, accurate to a few ulp for |x| up to about 1e5."""
        k, b = self.constants, self.b
        shifted = self.fma(x, self.constant(0.6366197723675814), self.constant(k.magic))
        turns = b.fsub(shifted, self.constant(k.magic))
        r = x
        for part in k.half_pi:
            r = self.fma(turns, self.constant(part), r, negate=True)
        square = b.fmul(r, r)
        sine = self.fma(b.fmul(square, self.polynomial(square, k.sin)), r, r)
        tail = b.fmul(b.fmul(square, square), self.polynomial(square, k.cos))
        cosine = b.fadd(self.fma(self.constant(-0.5), square, self.constant(1.0)), tail)
        integers = ir.VectorType(k.integer, self.lanes)

        def ints(value: int) -> Value:
            return ir.Constant(integers, [value] * self.lanes)

        quadrant = b.bitcast(shifted, integers)
        odd = b.icmp_unsigned("!=", b.and_(quadrant, ints(1)), ints(0))
        sign = 8 * self.bytes - 2
        sine_sign = b.shl(b.and_(quadrant, ints(2)), ints(sign))
        cosine_sign = b.shl(b.and_(b.add(quadrant, ints(1)), ints(2)), ints(sign))
        sine, cosine = b.select(odd, cosine, sine), b.select(odd, sine, cosine)
        signed = [
            b.bitcast(b.xor(b.bitcast(value, integers), flip), self.vector)
            for value, flip in ((sine, sine_sign), (cosine, cosine_sign))
        ]
        return signed[0], signed[1]

    def exp(self, x: Value) -> Value:
        """e to the power of `x`, accurate to a few ulp; where it would under- or overflow, the last normal value."""
        k = EXP_DOUBLE if self.bytes == 8 else EXP_SINGLE
        b, magic = self.b, self.constant(self.constants.magic)
        lowest, highest = self.constant(k.lowest), self.constant(k.highest)
        x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
        x = b.select(b.fcmp_ordered(">", x, highest), highest, x)
        shifted = self.fma(x, self.constant(1.4426950408889634), magic)
        powers = b.fsub(shifted, magic)
        r = x
        for part in k.ln2:
            r = self.fma(powers, self.constant(part), r, negate=True)
        value = self.polynomial(r, [1 / math.factorial(i) for i in range(k.degree, -1, -1)])
        integers = ir.VectorType(self.constants.integer, self.lanes)
        bits = b.shl(b.bitcast(shifted, integers), ir.Constant(integers, [k.mantissa] * self.lanes))
        return b.bitcast(b.add(b.bitcast(value, integers), bits), self.vector)

    def log(self, x: Value) -> Value:
        """The natural logarithm of positive normal numbers `x`, accurate to a few ulp."""
        exp, log = (EXP_DOUBLE, LOG_DOUBLE) if self.bytes == 8 else (EXP_SINGLE, LOG_SINGLE)
        b, integers = self.b, ir.VectorType(self.constants.integer, self.lanes)

        def ints(value: int) -> Value:
            return ir.Constant(integers, [value] * self.lanes)

        bits = b.bitcast(x, integers)
        power = b.ashr(b.sub(bits, ints(log.least)), ints(exp.mantissa))
        mantissa = b.bitcast(b.sub(bits, b.shl(power, ints(exp.mantissa))), self.vector)
        # log m = 2 artanh s = 2 (s + s^3/3 + ...), for m from sqrt(1/2) to sqrt(2).
        above = b.fsub(mantissa, self.constant(1.0))
        s = b.fdiv(above, b.fadd(mantissa, self.constant(1.0)))
        square = b.fmul(s, s)
        tail = self.polynomial(square, [2 / (2 * term + 1) for term in range(log.terms, 0, -1)])
        value = self.fma(b.fmul(s, square), tail, b.fadd(s, s))
        powers = b.sitofp(power, self.vector)
        for part in reversed(exp.ln2):
            value = self.fma(powers, self.constant(part), value)
        return value

    def sums(self, vectors: Sequence[Value]) -> Value:
        """From as many vectors as there are lanes, the vector whose lane i is the sum over the lanes of vector i."""
        vectors, distance = list(vectors), 1
        while distance < self.lanes:
            lanes = range(self.lanes)
            # Lane j of `kept` is lane j of a pair's first vector, or of its second one if j has the bit.
            kept = [j + self.lanes * bool(j & distance) for j in lanes]
            crossed = [(j ^ distance) + self.lanes * bool(j & distance) for j in lanes]
            vectors = [
                self.b.fadd(self.shuffle(u, kept, v), self.shuffle(u, crossed, v))
                for u, v in zip(vectors[::2], vectors[1::2], strict=True)
            ]
            distance *= 2
        return vectors[0]

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Of `x`, highest power first."""
        value = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.fma(value, x, self.constant(coefficient))
        return value
