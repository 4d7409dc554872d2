"""Numbers, vectors and complex numbers of compiled kernels, with operators; see `language`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

I64, I32, I16, I8, BIT = (ir.IntType(bits) for bits in (64, 32, 16, 8, 1))
DOUBLE, FLOAT, POINTER, VOID = ir.DoubleType(), ir.FloatType(), ir.PointerType(), ir.VoidType()


class Emitter:
    """Writes one function: constants, and loops over what is written with operators.

    lanes: of a vector. double: 64-bit floats instead of 32-bit ones. returns: LLVM's type of what the function returns.
    """

    def __init__(self, module: ir.Module, name: str, lanes: int, double: bool, returns: Any = VOID) -> None:
        self.module, self.lanes = module, lanes
        self.real = DOUBLE if double else FLOAT
        self.bytes = 8 if double else 4
        vector = ir.VectorType(self.real, lanes)
        self.types = {"integer": I64, "byte": I8, "real": self.real, "double": DOUBLE, "complex": self.real}
        self.types |= {"vector": vector, "aligned": vector, "complex vector": vector}
        self.function = ir.Function(module, ir.FunctionType(returns, [POINTER]), name)
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    def integer(self, value: Operand) -> Number:
        """A 64-bit integer."""
        return value if isinstance(value, Number) else self.constant(value, I64)

    def vector(self, values: float | Sequence[float], element: Any = None) -> Number:
        """A vector of floats, or of LLVM's type `element`: one number for all lanes, or one for each."""
        return self.constant(values, ir.VectorType(element or self.real, self.lanes))

    def constant(self, values: float | Sequence[float], typ: Any) -> Number:
        """A constant of LLVM's type `typ`: one number for all lanes, or one for each."""
        if not isinstance(typ, ir.VectorType):
            return Number(self, ir.Constant(typ, _fitting(values, typ)))
        each = [values] * typ.count if isinstance(values, (int, float)) else values
        elements = [ir.Constant(typ.element, _fitting(value, typ.element)) for value in each]
        return Number(self, ir.Constant(typ, elements))

    def few(self, lanes: int) -> str:
        """The element of arrays of vectors with so many lanes, at any place of an array of floats."""
        name = f"vector of {lanes}"
        self.types[name] = ir.VectorType(self.real, lanes)
        return name

    def zero_of(self, typ: Any) -> Number:
        """0 of a type."""
        return self.constant(0, typ)

    def gathered(self, scalars: Sequence[Number]) -> Number:
        """A vector of scalars."""
        vector = ir.Constant(ir.VectorType(scalars[0].type, len(scalars)), ir.Undefined)
        for lane, scalar in enumerate(scalars):
            vector = self.b.insert_element(vector, scalar.value, ir.Constant(I32, lane))
        return Number(self, vector)

    @contextmanager
    def loop(self, count: Operand, backwards: bool = False) -> Iterator[Number]:
        """Write the body for an index from 0 to count - 1, or from there to 0; count is at least 1."""
        end = self.integer(count)
        before, body = self.b.block, self.b.append_basic_block("loop")
        self.b.branch(body)
        self.b.position_at_end(body)
        index = self.b.phi(I64)
        index.add_incoming(ir.Constant(I64, 0), before)
        number = Number(self, index)
        yield (end - 1) - number if backwards else number
        following = number + 1
        index.add_incoming(following.value, self.b.block)
        after = self.b.append_basic_block("after")
        self.b.cbranch((following < end).value, body, after)
        self.b.position_at_end(after)

    def slot(self, number: int) -> Any:
        """The address of an entry of the arguments' array."""
        return self.b.gep(self.function.args[0], [ir.Constant(I64, number)], source_etype=I64)

    def intrinsic(self, name: str, result: Any, *numbers: Number) -> Number:
        """One of LLVM's functions."""
        suffixes = [f"v{n.lanes}" if n.lanes else "" for n in numbers[:1]]
        size = {FLOAT: "f32", DOUBLE: "f64"}.get(numbers[0].element) or f"i{numbers[0].element.width}"
        full = f"llvm.{name}.{suffixes[0]}{size}"
        function = self.module.globals.get(full)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [n.type for n in numbers]), full)
        return Number(self, self.b.call(function, [n.value for n in numbers]))


def _operator(of_floats: str | None, of_integers: str | None) -> Callable[[Number, Any], Any]:
    """A method for LLVM's instructions of these names."""

    def method(self: Number, other: Operand) -> Number:
        name = of_floats if self.is_float else of_integers
        if not isinstance(other, (Number, int, float)) or name is None:
            return NotImplemented
        one, two = _alike(self, other)
        instruction = "ashr" if name == "lshr" and self.is_signed else name
        return Number(self.code, getattr(self.code.b, instruction)(one.value, two.value), self.is_signed)

    return method


def _reflected(method: Callable[[Number, Any], Any]) -> Callable[[Number, Any], Any]:
    return lambda self, other: method(_like(self, other), self)


def _comparison(sign: str) -> Callable[[Number, Any], Number]:
    """A method that compares; with a float that is not a number nothing holds."""

    def method(self: Number, other: Operand) -> Number:
        (one, two), b = _alike(self, other), self.code.b
        of_integers = b.icmp_signed if one.is_signed or two.is_signed else b.icmp_unsigned
        compare = b.fcmp_ordered if one.is_float else of_integers
        return Number(self.code, compare(sign, one.value, two.value))

    return method


class Number:
    """An integer, a float, a bit, or a vector of them, in the code that is being written."""

    __slots__ = ("code", "is_signed", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: Emitter, value: Any, is_signed: bool = False) -> None:
        self.code, self.value, self.is_signed = code, value, is_signed

    @property
    def type(self) -> Any:
        """LLVM's type."""
        return self.value.type

    @property
    def lanes(self) -> int:
        """Lanes of a vector, 0 of a scalar."""
        return self.type.count if isinstance(self.type, ir.VectorType) else 0

    @property
    def element(self) -> Any:
        """LLVM's type of a lane."""
        return self.type.element if self.lanes else self.type

    @property
    def is_float(self) -> bool:
        """Whether it is of floats."""
        return isinstance(self.element, (ir.FloatType, ir.DoubleType))

    @property
    def signed(self) -> Number:
        """An integer whose comparisons and shifts mind its sign."""
        return Number(self.code, self.value, True)

    __add__, __sub__, __mul__ = _operator("fadd", "add"), _operator("fsub", "sub"), _operator("fmul", "mul")
    __radd__, __rsub__, __rmul__ = _reflected(__add__), _reflected(__sub__), _reflected(__mul__)
    __truediv__, __floordiv__, __mod__ = (
        _operator(*names) for names in (("fdiv", None), (None, "udiv"), (None, "urem"))
    )
    __rtruediv__ = _reflected(__truediv__)
    __lshift__, __rshift__ = _operator(None, "shl"), _operator(None, "lshr")
    __and__, __or__, __xor__ = (_operator(None, name) for name in ("and_", "or_", "xor"))
    __lt__, __le__, __gt__, __ge__ = (_comparison(sign) for sign in ("<", "<=", ">", ">="))
    __eq__, __ne__ = _comparison("=="), _comparison("!=")  # type: ignore[assignment]

    def __neg__(self) -> Number:
        return Number(self.code, (self.code.b.fneg if self.is_float else self.code.b.neg)(self.value))

    def __invert__(self) -> Number:
        return Number(self.code, self.code.b.not_(self.value))

    def lane(self, number: Operand) -> Number:
        """One lane of a vector."""
        return Number(self.code, self.code.b.extract_element(self.value, self.code.integer(number).value))

    def shuffled(self, sources: Sequence[int], other: Number | None = None) -> Number:
        """A vector whose lane i is lane sources[i] of this one; the lanes of `other` are numbered after its own."""
        if list(sources) == list(range(self.lanes)):
            return self
        mask = ir.Constant(ir.VectorType(I32, len(sources)), list(sources))
        rest = ir.Constant(self.type, ir.Undefined) if other is None else other.value
        return Number(self.code, self.code.b.shuffle_vector(self.value, rest, mask))

    def splat(self, lanes: int = 0) -> Number:
        """A vector with this scalar in every lane."""
        lanes = lanes or self.code.lanes
        undefined = ir.Constant(ir.VectorType(self.type, lanes), ir.Undefined)
        one = self.code.b.insert_element(undefined, self.value, ir.Constant(I32, 0))
        return Number(self.code, one).shuffled([0] * lanes)

    def bits(self, element: Any = None, lanes: int = 0) -> Number:
        """The same bits as integers of type `element`, in so many lanes; without them, of this number's size."""
        element = element or (I64 if self.element in (DOUBLE, I64) else I32)
        lanes = lanes or self.lanes
        return Number(self.code, self.code.b.bitcast(self.value, _vector_type(element, lanes)))

    def truncated(self, element: Any) -> Number:
        """The low bits of an integer."""
        return Number(self.code, self.code.b.trunc(self.value, _vector_type(element, self.lanes)))

    def widened(self, element: Any = I64) -> Number:
        """An integer of more bits."""
        return Number(self.code, self.code.b.zext(self.value, _vector_type(element, self.lanes)))

    def as_integer(self) -> Number:
        """The 64-bit integer of a float that is a whole number."""
        return Number(self.code, self.code.b.fptosi(self.value, _vector_type(I64, self.lanes)))

    def as_float(self, element: Any = None) -> Number:
        """A float of type `element`, of the kernel's precision without it: from an integer, or from another precision."""
        element, b = element or self.code.real, self.code.b
        if self.element == element:
            return self
        convert = b.sitofp if not self.is_float else b.fpext if element == DOUBLE else b.fptrunc
        return Number(self.code, convert(self.value, _vector_type(element, self.lanes)))


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number of two `Number`s; a product adds the imaginary parts' products to the real parts', fused."""

    real: Number
    imag: Number

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.real - other.real, self.imag - other.imag)

    def __neg__(self) -> Complex:
        return Complex(-self.real, -self.imag)

    def __mul__(self, other: Any) -> Complex:
        if isinstance(other, Complex):
            product: Complex = fma(self, other)
            return product
        return Complex(self.real * other, self.imag * other)

    def __rmul__(self, factor: Operand) -> Complex:
        return Complex(factor * self.real, factor * self.imag)

    def conjugate(self) -> Complex:
        """The complex conjugate."""
        return Complex(self.real, -self.imag)

    def times_i(self) -> Complex:
        """i times it."""
        return Complex(-self.imag, self.real)


Operand: TypeAlias = Number | int | float


def fma(a: Any, b: Any, c: Any = None) -> Any:
    """a b + c with one rounding, or a b alone; of complex numbers each part with one rounding a product."""
    if isinstance(a, Complex):
        if not isinstance(b, Complex):
            return Complex(fma(a.real, b, c and c.real), fma(a.imag, b, c and c.imag))
        real, imag = (None, None) if c is None else (c.real, c.imag)
        return Complex(
            fnma(a.imag, b.imag, fma(a.real, b.real, real)), fma(a.imag, b.real, fma(a.real, b.imag, imag))
        )
    if c is None:
        return a * b
    a, b, c = _all_alike(a, b, c)
    return a.code.intrinsic("fma", a.type, a, b, c)


def fnma(a: Operand, b: Operand, c: Operand | None = None) -> Number:
    """c - a b with one rounding, or -(a b)."""
    result: Number = -(a * b) if c is None else fma(-a, b, c)  # type: ignore[assignment]
    return result


def select(condition: Number, yes: Any, no: Any) -> Any:
    """`yes` where a condition holds, else `no`."""
    if isinstance(yes, Complex):
        return Complex(select(condition, yes.real, no.real), select(condition, yes.imag, no.imag))
    if not isinstance(yes, Number) and not isinstance(no, Number):
        yes = condition.code.vector(yes) if condition.lanes else condition.code.constant(yes, I64)
    yes, no = _all_alike(yes, no)
    if condition.lanes and not yes.lanes:
        yes, no = yes.splat(condition.lanes), no.splat(condition.lanes)
    return Number(condition.code, condition.code.b.select(condition.value, yes.value, no.value))


def minimum(a: Operand, b: Operand) -> Number:
    """The smaller one; `b` if one is not a number."""
    a, b = _all_alike(a, b)
    result: Number = select(a < b, a, b)
    return result


def maximum(a: Operand, b: Operand) -> Number:
    """The larger one; `b` if one is not a number."""
    a, b = _all_alike(a, b)
    result: Number = select(a > b, a, b)
    return result


def sqrt(x: Number) -> Number:
    """The square root."""
    return x.code.intrinsic("sqrt", x.type, x)


def absolute(x: Number) -> Number:
    """The absolute value of a float."""
    return x.code.intrinsic("fabs", x.type, x)


def ceil(x: Number) -> Number:
    """The least whole number that is not below a float."""
    return x.code.intrinsic("ceil", x.type, x)


def is_nan(x: Number) -> Number:
    """Whether it is not a number."""
    return Number(x.code, x.code.b.fcmp_unordered("uno", x.value, x.value))


def lane_sum(vector: Number, group: int = 0) -> Number:
    """The sum over each `group` (a power of 2; without it, all) of neighbouring lanes, in all of them, pairwise."""
    distance = 1
    while distance < (group or vector.lanes):
        vector = vector + vector.shuffled([lane ^ distance for lane in range(vector.lanes)])
        distance *= 2
    return vector


def lane_sums(vectors: Sequence[Number]) -> Number:
    """From as many vectors as there are lanes, the vector whose lane i is the sum over the lanes of vector i."""
    rest, distance = list(vectors), 1
    lanes = range(rest[0].lanes)
    while distance < len(lanes):
        # Lane j of `kept` is lane j of a pair's first vector, or of its second one if j has the bit.
        picks = [j + len(lanes) * bool(j & distance) for j in lanes]
        crossed = [(j ^ distance) + len(lanes) * bool(j & distance) for j in lanes]
        pairs = zip(rest[::2], rest[1::2], strict=True)
        rest = [u.shuffled(picks, v) + u.shuffled(crossed, v) for u, v in pairs]
        distance *= 2
    return rest[0]


def largest_lane(vector: Number) -> Number:
    """The largest float of a vector, as a scalar."""
    return vector.code.intrinsic("vector.reduce.fmax", vector.element, vector)


def chunk(number: Number, size: Operand, end: Operand) -> tuple[Number, Number]:
    """The first index of a chunk of `size`, and the number of its indices, which are below `end`."""
    first = number * size
    return first, minimum(size, end - first)


def ceil_divided(number: Operand, size: Operand) -> Any:
    """How many chunks of `size` there are."""
    return (number + (size - 1)) // size  # type: ignore[operator]


def _vector_type(element: Any, lanes: int) -> Any:
    return ir.VectorType(element, lanes) if lanes else element


def _fitting(value: Any, typ: Any) -> Any:
    """A Python number for LLVM's text, in which integers are signed."""
    if not isinstance(typ, ir.IntType):
        return float(value)
    value = int(value) % (1 << typ.width)
    return value - (1 << typ.width) if value >> (typ.width - 1) and typ.width > 1 else value


def _like(model: Number, value: Operand) -> Number:
    """A number or constant of the lanes of another one."""
    if not isinstance(value, Number):
        return model.code.constant(value, model.type)
    return value.splat(model.lanes) if model.lanes and not value.lanes else value


def _alike(one: Operand, other: Operand) -> tuple[Number, Number]:
    one, other = _all_alike(one, other)
    return one, other


def _all_alike(*values: Operand) -> list[Number]:
    """Numbers of equal lanes."""
    numbers = [value for value in values if isinstance(value, Number)]
    model = max(numbers, key=lambda each: each.lanes)
    return [_like(model, value) for value in values]
