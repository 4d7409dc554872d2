"""The language of compiled kernels: numbers and vectors with operators, arrays by index, loops, threads.

A kernel is a Python function that writes its body; `kernel.Kernel` compiles, keeps and calls it. So y <- a x + y, by
rows that threads share, is

    ARGUMENTS = {"rows vectors": INTEGER, "a": REAL, "x y": vectors("rows", "vectors")}

    def add(k: Code, args: Arguments) -> None:
        with k.tasks(args.rows) as row, k.loop(args.vectors) as v:
            args.y[row, v] = fma(args.a, args.x[row, v], args.y[row, v])

    @cache
    def added(dtype: torch.dtype) -> Kernel:
        return Kernel((add,), ARGUMENTS, dtype, lanes=16)

    added(x.dtype)("add", threads=2, rows=len(x), vectors=x.shape[1] // 16, a=0.5, x=x, y=y)

Operators do exactly what they say, one rounding each: nothing is fused or reordered, so results do not depend on the
processor. With a vector, a scalar stands for a vector of it. Integers are not negative (`signed` says otherwise).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from llvmlite import ir

I64, I32, I16, I8, BIT = (ir.IntType(bits) for bits in (64, 32, 16, 8, 1))
DOUBLE, FLOAT, POINTER = ir.DoubleType(), ir.FloatType(), ir.PointerType()


class Type(NamedTuple):
    """The type of an argument: its elements, and the shape of an array by numbers and names; without one, a number.

    A name is that of an integer argument or of an attribute of the kernel's plan. The first size is not read.
    """

    element: str
    shape: tuple[int | str, ...] = ()


INTEGER, REAL = Type("integer"), Type("real")


def _array(element: str) -> Callable[..., Type]:
    def typed(*shape: int | str) -> Type:
        return Type(element, shape)

    return typed


# Arrays of numbers: integers of 64 and of 8 bits, floats of the kernel's precision and of 64 bits, complex numbers.
integers, bytes_ = _array("integer"), _array("byte")
reals, doubles, complexes = _array("real"), _array("double"), _array("complex")
# Arrays of vectors: at any place of an array of floats; aligned to their size (to 64 bytes, if they are larger); and
# complex ones, an aligned vector of real parts and one of imaginary parts.
vectors, aligned, complex_vectors = _array("vector"), _array("aligned"), _array("complex vector")


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

    def __init__(self, code: Code, value: Any, is_signed: bool = False) -> None:
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
# Numbers in lists, tuples and dicts.
Tree: TypeAlias = Any


class Lanes(tuple[Number, ...]):
    """An index for each lane: an array gives a vector for it."""


class Buffer:
    """An array in memory, or for each lane one: full indices read or write an element, fewer give a part of it."""

    def __init__(
        self, code: Code, element: str, addresses: Any, shape: Sequence[Operand], by_lane: bool = False
    ) -> None:
        self.code, self.element, self.shape = code, element, tuple(shape)
        self._addresses, self._by_lane = addresses, by_lane

    def __getitem__(self, index: Any) -> Any:
        index = index if isinstance(index, tuple) and not isinstance(index, Lanes) else (index,)
        if len(index) < len(self.shape):
            return self.part(index, *self.shape[len(index) :])
        found = self._elements(index)
        return Complex(*map(self._read, found)) if len(found) == 2 else self._read(found[0])

    def __setitem__(self, index: Any, value: Any) -> None:
        index = index if isinstance(index, tuple) and not isinstance(index, Lanes) else (index,)
        found = self._elements(index)
        values = (value.real, value.imag) if isinstance(value, Complex) else (value,)
        for addresses, each in zip(found, values, strict=True):
            self._write(addresses, each)

    def part(self, index: Any = (), *shape: Operand, element: str = "") -> Buffer:
        """The array of this shape (and other elements, perhaps) that begins at an index."""
        index = index if isinstance(index, tuple) and not isinstance(index, Lanes) else (index,)
        addresses, by_lane = self._at(index)
        return Buffer(self.code, element or self.element, addresses, shape, by_lane)

    def split(self, *shapes: Sequence[Operand]) -> list[Buffer]:
        """Arrays of these shapes, one after the other, from the start on."""
        first: Operand = 0
        made = []
        for shape in shapes:
            flat = Buffer(self.code, self.element, self._addresses, (1,), self._by_lane)
            made.append(flat.part(first, *shape))
            first = _sum(first, _product(shape))
        return made

    def zero(self, count: Operand) -> None:
        """Set the first numbers or vectors to 0."""
        with self.code.loop(count) as number:
            flat = self.part((), 1)
            flat[number] = self.code.zero_of(self._type)

    @property
    def _type(self) -> Any:
        return self.code.types[self.element]

    def _at(self, index: tuple[Any, ...]) -> tuple[Any, bool]:
        """The address of a place (for each lane), and whether it is for each lane."""
        if any(isinstance(each, Lanes) for each in index) or self._by_lane:
            count = self.code.lanes
            each = [i if isinstance(i, Lanes) else (i,) * count for i in index]
            bases = self._addresses if self._by_lane else (self._addresses,) * count
            places = zip(bases, *each, strict=True)
            return [self._one(base, tuple(own)) for base, *own in places], True
        return self._one(self._addresses, index), False

    def _one(self, base: Any, index: tuple[Operand, ...]) -> Any:
        assert len(index) <= len(self.shape), "more indices than sizes"
        flat: Operand = 0
        for number, size in itertools.zip_longest(index, self.shape, fillvalue=0):
            flat = _sum(_product((flat, size)), number)
        flat = _product((flat, 2)) if self.element in _COMPLEX else flat
        return self.code.address(base, flat, self._type)

    def _elements(self, index: tuple[Any, ...]) -> list[Any]:
        """The addresses of an element's parts."""
        addresses, by_lane = self._at(index)
        if self.element not in _COMPLEX:
            return [addresses]
        second = [self.code.address(one, 1, self._type) for one in (addresses if by_lane else [addresses])]
        return [addresses, second if by_lane else second[0]]

    def _read(self, addresses: Any) -> Number:
        code, b = self.code, self.code.b
        if not isinstance(addresses, list):
            return Number(code, b.load(addresses, typ=self._type, align=code.alignment(self.element)))
        return code.gathered([Number(code, b.load(each, typ=self._type)) for each in addresses])

    def _write(self, addresses: Any, value: Operand) -> None:
        code = self.code
        if isinstance(addresses, list):
            assert isinstance(value, Number)
            for lane, address in enumerate(addresses):
                code.b.store(value.lane(lane).value, address, align=code.alignment(self.element))
        else:
            made = value if isinstance(value, Number) else code.constant(value, self._type)
            if self._type != made.type:
                made = made.splat(self._type.count)
            code.b.store(made.value, addresses, align=code.alignment(self.element))


_COMPLEX = {"complex": "real", "complex vector": "aligned"}


class Variable:
    """Numbers that loops change, in lists, tuples or dicts; LLVM keeps them in registers where it can."""

    def __init__(self, code: Code, value: Tree) -> None:
        self._code, self._like = code, value
        with code.b.goto_entry_block():  # only there LLVM keeps variables in registers
            self._places = [code.b.alloca(each.type) for each in _leaves(value)]
        self.value = value

    @property
    def value(self) -> Tree:
        """The numbers now."""
        pairs = zip(self._places, _leaves(self._like), strict=True)
        loaded = iter([Number(self._code, self._code.b.load(at, typ=like.type)) for at, like in pairs])
        return _rebuilt(self._like, lambda _: next(loaded))

    @value.setter
    def value(self, value: Tree) -> None:
        for at, each in zip(self._places, _leaves(value), strict=True):
            self._code.b.store(each.value, at)


class Arguments:
    """The arguments of a kernel by name: numbers and buffers."""

    def __init__(self, code: Code, types: Mapping[str, tuple[int, Type]], plan: Any) -> None:
        self._code, self._types, self._plan = code, types, plan

    def __getattr__(self, name: str) -> Any:
        try:
            slot, kind = self._types[name]
        except KeyError:
            raise AttributeError(f"the kernel has no argument {name}") from None
        made: Any
        if kind.shape:
            shape = [1, *(size if isinstance(size, int) else self._size(size) for size in kind.shape[1:])]
            made = Buffer(self._code, kind.element, self._code.slot(slot, POINTER), shape)
        else:
            made = Number(self._code, self._code.slot(slot, self._code.types[kind.element]))
        # Kept: next time it is found without this function.
        self.__dict__[name] = made
        return made

    def _size(self, name: str) -> Operand:
        found: Operand = getattr(self, name) if name in self._types else getattr(self._plan, name)
        return found


class Code:
    """The code of one function that is being written.

    lanes: of a vector. double: 64-bit floats instead of 32-bit ones.
    """

    def __init__(self, module: ir.Module, name: str, lanes: int, double: bool) -> None:
        self.module, self.lanes, self.is_double = module, lanes, double
        self.real = DOUBLE if double else FLOAT
        self.bytes = 8 if double else 4
        vector = ir.VectorType(self.real, lanes)
        self.types = {"integer": I64, "byte": I8, "real": self.real, "double": DOUBLE, "complex": self.real}
        self.types |= {"vector": vector, "aligned": vector, "complex vector": vector}
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), name)
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    # --- numbers ---

    def integer(self, value: Operand) -> Number:
        """A 64-bit integer."""
        return value if isinstance(value, Number) else self.constant(value, I64)

    def vector(self, values: float | Sequence[float]) -> Number:
        """A vector of floats: one for all lanes, or one for each."""
        return self.constant(values, self.types["vector"])

    def constant(self, values: float | Sequence[float], typ: Any) -> Number:
        """A constant of LLVM's type `typ`: one number for all lanes, or one for each."""
        if not isinstance(typ, ir.VectorType):
            return Number(self, ir.Constant(typ, _fitting(values, typ)))
        each = [values] * typ.count if isinstance(values, (int, float)) else values
        elements = [ir.Constant(typ.element, _fitting(value, typ.element)) for value in each]
        return Number(self, ir.Constant(typ, elements))

    def zero_of(self, typ: Any) -> Number:
        """0 of a type."""
        return self.constant(0, typ)

    def gathered(self, scalars: Sequence[Number]) -> Number:
        """A vector of scalars."""
        made = ir.Constant(ir.VectorType(scalars[0].type, len(scalars)), ir.Undefined)
        for lane, scalar in enumerate(scalars):
            made = self.b.insert_element(made, scalar.value, ir.Constant(I32, lane))
        return Number(self, made)

    def variable(self, value: Tree) -> Variable:
        """Numbers that loops change, which begin as these."""
        return Variable(self, value)

    # --- memory ---

    def slot(self, number: int, typ: Any) -> Any:
        """An argument's value; it is read at the start of the function."""
        with self.b.goto_entry_block():
            return self.b.load(self._slot_address(number), typ=typ)

    def _slot_address(self, number: int) -> Any:
        return self.b.gep(self.function.args[0], [ir.Constant(I64, number)], source_etype=I64)

    def address(self, base: Any, number: Operand, typ: Any) -> Any:
        """The address of an element after `base`."""
        if isinstance(number, int) and number == 0:
            return base
        return self.b.gep(base, [self.integer(number).value], source_etype=typ)

    def alignment(self, element: str) -> int:
        """The alignment of elements in bytes."""
        if element in ("aligned", "complex vector"):
            # torch aligns what it allocates to 64 bytes.
            return min(64, self.lanes * self.bytes)
        return {"integer": 8, "byte": 1, "double": 8}.get(element, self.bytes)

    def local(self, *shape: int, element: str = "aligned") -> Buffer:
        """An array of the function's own."""
        typ, count = self.types[element], _product(shape)
        with self.b.goto_entry_block():
            place = self.b.alloca(typ, size=_product((count, 2)) if element in _COMPLEX else count)
        return Buffer(self, element, place, shape)

    def table(self, name: str, values: Sequence[float], element: str = "real") -> Buffer:
        """A constant array; an equal name within a function must mean equal values."""
        full = f"{self.function.name}.{name}"
        array = ir.ArrayType(self.types[element], len(values))
        if full not in self.module.globals:
            made = ir.GlobalVariable(self.module, array, full)
            made.linkage, made.global_constant = "internal", True
            made.initializer = ir.Constant(array, list(values))
        return Buffer(self, element, self.module.globals[full], (len(values),))

    # --- control flow ---

    @contextmanager
    def loop(self, count: Operand, backwards: bool = False) -> Iterator[Number]:
        """Write the body for an index from 0 to count - 1, or from there to 0; count is at least 1."""
        end = self.integer(count)
        before, body = self.b.block, self.b.append_basic_block("loop")
        self.b.branch(body)
        self.b.position_at_end(body)
        index = self.b.phi(I64)
        index.add_incoming(ir.Constant(I64, 0), before)
        done = Number(self, index)
        yield (end - 1) - done if backwards else done
        following = done + 1
        index.add_incoming(following.value, self.b.block)
        after = self.b.append_basic_block("after")
        self.b.cbranch((following < end).value, body, after)
        self.b.position_at_end(after)

    @contextmanager
    def tasks(self, count: Operand) -> Iterator[Number]:
        """Write the body for an index from 0 to count - 1, of which threads take one after the other."""
        b = self.b
        test, body, done = (b.append_basic_block(name) for name in ("take", "taken", "done"))
        # Whatever is read at the start must be there before threads go on.
        end = self.integer(count)
        b.branch(test)
        b.position_at_end(test)
        index = self._counted(NEXT_TASK)
        b.cbranch((index < end).value, body, done)
        b.position_at_end(body)
        yield index
        b.branch(test)
        b.position_at_end(done)

    def worker(self) -> Number:
        """The number of this thread among those that run the function; to be asked for once."""
        return self._counted(NEXT_WORKER)

    def _counted(self, slot: int) -> Number:
        address, one = self._slot_address(slot), ir.Constant(I64, 1)
        return Number(self, self.b.atomic_rmw("add", address, one, "monotonic"))

    @contextmanager
    def when(self, condition: Number) -> Iterator[None]:
        """Write the body for the case that a condition holds."""
        with self.b.if_then(condition.value):
            yield

    def either(self, condition: Number, first: Callable[[], None], second: Callable[[], None]) -> None:
        """Write one body for the case that a condition holds, and another one for the other case."""
        with self.b.if_else(condition.value) as (then, otherwise):
            with then:
                first()
            with otherwise:
                second()

    def call(self, name: str) -> None:
        """Call a function of the module that was written before, with the same arguments."""
        self.b.call(self.module.globals[name], [self.function.args[0]])

    # --- tasks in lanes ---

    def lanes_of(self, group: Operand, count: Operand) -> tuple[Lanes, Number]:
        """The numbers of a group's tasks, one for each lane, and which lanes have one: those after the last repeat it."""
        first = self.integer(group) * self.lanes
        numbers = [first + lane for lane in range(self.lanes)]
        last = self.integer(count) - 1
        present = first.splat() + self.constant(range(self.lanes), ir.VectorType(I64, self.lanes)) < count
        return Lanes(select(number < last, number, last) for number in numbers), present

    def intrinsic(self, name: str, result: Any, *numbers: Number) -> Number:
        """One of LLVM's functions."""
        suffixes = [f"v{n.lanes}" if n.lanes else "" for n in numbers[:1]]
        size = {FLOAT: "f32", DOUBLE: "f64"}.get(numbers[0].element) or f"i{numbers[0].element.width}"
        full = f"llvm.{name}.{suffixes[0]}{size}"
        function = self.module.globals.get(full)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [n.type for n in numbers]), full)
        return Number(self, self.b.call(function, [n.value for n in numbers]))


# The first entries of the arguments' array are counters.
NEXT_TASK, NEXT_WORKER, COUNTERS = 0, 1, 2


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
    made: Number = -(a * b) if c is None else fma(-a, b, c)  # type: ignore[assignment]
    return made


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
    made: Number = select(a < b, a, b)
    return made


def maximum(a: Operand, b: Operand) -> Number:
    """The larger one; `b` if one is not a number."""
    a, b = _all_alike(a, b)
    made: Number = select(a > b, a, b)
    return made


def sqrt(x: Number) -> Number:
    """The square root."""
    return x.code.intrinsic("sqrt", x.type, x)


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
    left, distance = list(vectors), 1
    lanes = range(left[0].lanes)
    while distance < len(lanes):
        # Lane j of `kept` is lane j of a pair's first vector, or of its second one if j has the bit.
        kept = [j + len(lanes) * bool(j & distance) for j in lanes]
        crossed = [(j ^ distance) + len(lanes) * bool(j & distance) for j in lanes]
        pairs = zip(left[::2], left[1::2], strict=True)
        left = [u.shuffled(kept, v) + u.shuffled(crossed, v) for u, v in pairs]
        distance *= 2
    return left[0]


def chunk(number: Number, size: Operand, end: Operand) -> tuple[Number, Number]:
    """The first index of a chunk of `size`, and the number of its indices, which are below `end`."""
    first = number * size
    return first, minimum(size, end - first)


def ceil_divided(number: Operand, size: Operand) -> Any:
    """How many chunks of `size` there are."""
    return (number + (size - 1)) // size  # type: ignore[operator]


# --- types ---


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


def _leaves(tree: Tree) -> list[Number]:
    found: list[Number] = []
    _rebuilt(tree, lambda each: found.append(each))
    return found


def _rebuilt(tree: Tree, each: Callable[[Number], Any]) -> Tree:
    if isinstance(tree, Number):
        return each(tree)
    if isinstance(tree, Complex):
        return Complex(each(tree.real), each(tree.imag))
    if isinstance(tree, dict):
        return {key: _rebuilt(value, each) for key, value in tree.items()}
    return type(tree)([_rebuilt(value, each) for value in tree])


def _sum(a: Operand, b: Operand) -> Operand:
    return b if _is(a, 0) else a if _is(b, 0) else a + b


def _product(numbers: Sequence[Operand]) -> Any:
    total: Operand = 1
    for number in numbers:
        if _is(total, 0) or _is(number, 0):
            return 0
        total = number if _is(total, 1) else total if _is(number, 1) else total * number
    return total


def _is(number: Operand, value: int) -> bool:
    return isinstance(number, int) and number == value
