"""The language of compiled kernels: numbers and vectors with operators, arrays by index, loops, threads.

A kernel is a Python function that writes its body; `kernel.Kernel` compiles, keeps and calls it. So y <- a x + y, by
rows that threads share, is

    ARGUMENTS = {"rows vectors": INTEGER, "a": REAL, "x y": vectors("rows", "vectors")}

    def add(k: FunctionCode, args: Arguments) -> None:
        with k.tasks(args.rows) as row, k.loop(args.vectors) as v:
            args.y[row, v] = fma(args.a, args.x[row, v], args.y[row, v])

    @cache
    def added(dtype: torch.dtype) -> Kernel:
        return Kernel((add,), ARGUMENTS, dtype, lanes=16)

    added(x.dtype).run("add", threads=2, rows=len(x), vectors=x.shape[1] // 16, a=0.5, x=x, y=y)

Operators do exactly what they say, one rounding each: nothing is fused or reordered, so results do not depend on the
processor. With a vector, a scalar is broadcast. Integers are not negative (`signed` says otherwise).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from llvmlite import ir

# Kernels find all parts of the language here.
from ketscale.engines.compiled.operators import *  # noqa: F403
from ketscale.engines.compiled.operators import I64, POINTER, Complex, Emitter, Number, Operand, select

# The first entries of the arguments' array are counters.
NEXT_TASK, NEXT_WORKER, COUNTERS = 0, 1, 2

# Numbers in lists, tuples and dicts.
Tree: TypeAlias = Any


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


class Lanes(tuple[Number, ...]):
    """An index for each lane: an array gives a vector for it."""


class Buffer:
    """An array in memory, or for each lane one: full indices read or write an element, fewer give a part of it."""

    def __init__(
        self, code: Emitter, element: str, addresses: Any, shape: Sequence[Operand], by_lane: bool = False
    ) -> None:
        self.code, self.element, self.shape = code, element, tuple(shape)
        self._addresses, self._by_lane = addresses, by_lane

    def __getitem__(self, index: Any) -> Any:
        index = _as_tuple(index)
        if len(index) < len(self.shape):
            return self.part(index, *self.shape[len(index) :])
        addresses = self._elements(index)
        return Complex(*map(self._read, addresses)) if len(addresses) == 2 else self._read(addresses[0])

    def __setitem__(self, index: Any, value: Any) -> None:
        index = _as_tuple(index)
        places = self._elements(index)
        values = (value.real, value.imag) if isinstance(value, Complex) else (value,)
        for addresses, each in zip(places, values, strict=True):
            self._write(addresses, each)

    def part(self, index: Any = (), *shape: Operand, element: str = "") -> Buffer:
        """The array of this shape (and other elements, perhaps) that begins at an index."""
        index = _as_tuple(index)
        addresses, by_lane = self._at(index)
        return Buffer(self.code, element or self.element, addresses, shape, by_lane)

    def split(self, *shapes: Sequence[Operand]) -> list[Buffer]:
        """Arrays of these shapes, one after the other, from the start on."""
        first: Operand = 0
        parts = []
        for shape in shapes:
            flat = Buffer(self.code, self.element, self._addresses, (1,), self._by_lane)
            parts.append(flat.part(first, *shape))
            first = _sum(first, product(shape))
        return parts

    @property
    def flat(self) -> Buffer:
        """All elements, one after the other."""
        return self.part((), 1)

    @property
    def count(self) -> Any:
        """How many elements there are, in an array whose first size is known."""
        return product(self.shape)

    @property
    def address(self) -> Number:
        """The address of its first element, as an integer."""
        return Number(self.code, self.code.b.ptrtoint(self._addresses, I64))

    def zero(self, count: Operand | None = None) -> None:
        """Set the first elements (without `count`, all) to 0."""
        parts = self.flat
        parts.element, several = _COMPLEX.get(self.element, self.element), 1 + (self.element in _COMPLEX)
        with self.code.loop(product((self.count if count is None else count, several))) as number:
            parts[number] = 0.0

    def add(self, index: Any, value: Any) -> None:
        """Add to an element, lane after lane if there is one for each, so that lanes may meet."""
        addresses = self._elements(_as_tuple(index))
        parts = (value.real, value.imag) if isinstance(value, Complex) else (value,)
        for places, part in zip(addresses, parts, strict=True):
            for lane, place in enumerate(places if self._by_lane else [places]):
                self._write(place, self._read(place) + (part.lane(lane) if self._by_lane else part))

    @property
    def _type(self) -> Any:
        return self.code.types[self.element]

    @property
    def _alignment(self) -> int:
        """The alignment of elements in bytes."""
        if self.element in ("aligned", "complex vector"):
            # torch aligns what it allocates to 64 bytes.
            return min(64, self.code.lanes * self.code.bytes)
        return {"integer": 8, "byte": 1, "double": 8}.get(self.element, self.code.bytes)

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
            flat = _sum(product((flat, size)), number)
        flat = product((flat, 2)) if self.element in _COMPLEX else flat
        return self._after(base, flat)

    def _after(self, base: Any, number: Operand) -> Any:
        """The address of an element (of a complex one, a part) after another one."""
        if _is(number, 0):
            return base
        return self.code.b.gep(base, [self.code.integer(number).value], source_etype=self._type)

    def _elements(self, index: tuple[Any, ...]) -> list[Any]:
        """The addresses of an element's parts."""
        addresses, by_lane = self._at(index)
        if self.element not in _COMPLEX:
            return [addresses]
        second = [self._after(one, 1) for one in (addresses if by_lane else [addresses])]
        return [addresses, second if by_lane else second[0]]

    def _read(self, addresses: Any) -> Number:
        code, b = self.code, self.code.b
        if not isinstance(addresses, list):
            return Number(code, b.load(addresses, typ=self._type, align=self._alignment))
        return code.gathered([Number(code, b.load(each, typ=self._type)) for each in addresses])

    def _write(self, addresses: Any, value: Operand) -> None:
        code = self.code
        if isinstance(addresses, list):
            assert isinstance(value, Number)
            for lane, address in enumerate(addresses):
                code.b.store(value.lane(lane).value, address, align=self._alignment)
        else:
            number = value if isinstance(value, Number) else code.constant(value, self._type)
            if self._type != number.type:
                number = number.splat(self._type.count)
            code.b.store(number.value, addresses, align=self._alignment)


def _as_tuple(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) and not isinstance(index, Lanes) else (index,)


_COMPLEX = {"complex": "real", "complex vector": "aligned"}


class Variable:
    """Numbers that loops change, in lists, tuples or dicts; LLVM keeps them in registers where it can."""

    def __init__(self, code: Emitter, value: Tree) -> None:
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

    def __init__(self, code: Emitter, types: Mapping[str, tuple[int, Type]], plan: Any) -> None:
        self._code, self._types, self._plan = code, types, plan

    def __getattr__(self, name: str) -> Any:
        try:
            slot, kind = self._types[name]
        except KeyError:
            raise AttributeError(f"the kernel has no argument {name}") from None
        argument: Any
        if kind.shape:
            sizes = [
                size if isinstance(size, int) else getattr(self if size in self._types else self._plan, size)
                for size in kind.shape[1:]
            ]
            argument = Buffer(self._code, kind.element, self._read(slot, POINTER), (1, *sizes))
        else:
            argument = Number(self._code, self._read(slot, self._code.types[kind.element]))
        # Kept: next time it is found without this function.
        self.__dict__[name] = argument
        return argument

    def _read(self, slot: int, typ: Any) -> Any:
        """An argument's value; it is read at the start of the function."""
        with self._code.b.goto_entry_block():
            return self._code.b.load(self._code.slot(slot), typ=typ)


def _leaves(tree: Tree) -> list[Number]:
    leaves: list[Number] = []
    _rebuilt(tree, lambda each: leaves.append(each))
    return leaves


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


def product(numbers: Sequence[Operand]) -> Any:
    """The product of sizes, which are Python's as long as they can be."""
    total: Operand = 1
    for number in numbers:
        if _is(total, 0) or _is(number, 0):
            return 0
        total = number if _is(total, 1) else total if _is(number, 1) else total * number
    return total


def _is(number: Operand, value: int) -> bool:
    return isinstance(number, int) and number == value


class FunctionCode(Emitter):
    """The code of one function that is being written; see `Emitter`."""

    def variable(self, value: Tree) -> Variable:
        """Numbers that loops change, which begin as these."""
        return Variable(self, value)

    def array_at(self, address: Number, element: str, *shape: Operand) -> Buffer:
        """The array at an address that is an integer."""
        return Buffer(self, element, self.b.inttoptr(address.value, POINTER), shape)

    def local(self, *shape: int, element: str = "aligned") -> Buffer:
        """An array of the function's own."""
        typ, count = self.types[element], product(shape)
        with self.b.goto_entry_block():
            place = self.b.alloca(typ, size=product((count, 2)) if element.startswith("complex") else count)
        return Buffer(self, element, place, shape)

    def table(self, name: str, values: Sequence[float], element: str = "real") -> Buffer:
        """A constant array; an equal name within a function must mean equal values."""
        full = f"{self.function.name}.{name}"
        array = ir.ArrayType(self.types[element], len(values))
        if full not in self.module.globals:
            table = ir.GlobalVariable(self.module, array, full)
            table.linkage, table.global_constant = "internal", True
            table.initializer = ir.Constant(array, list(values))
        return Buffer(self, element, self.module.globals[full], (len(values),))

    # --- control flow ---

    @contextmanager
    def tasks(self, count: Operand) -> Iterator[Number]:
        """Write the body for an index from 0 to count - 1, of which threads take one after the other."""
        b = self.b
        test, body, after = (b.append_basic_block(name) for name in ("take", "taken", "done"))
        # Arguments are read before the loop, at the start of the function.
        end = self.integer(count)
        b.branch(test)
        b.position_at_end(test)
        index = self._counted(NEXT_TASK)
        b.cbranch((index < end).value, body, after)
        b.position_at_end(body)
        yield index
        b.branch(test)
        b.position_at_end(after)

    def restart_tasks(self) -> None:
        """Let the next `tasks` begin with the first one, in a function of one thread that calls others."""
        self.b.store(ir.Constant(I64, 0), self.slot(NEXT_TASK))

    def worker(self) -> Number:
        """The number of this thread among those that run the function; to be asked for once."""
        return self._counted(NEXT_WORKER)

    def _counted(self, slot: int) -> Number:
        address, one = self.slot(slot), ir.Constant(I64, 1)
        return Number(self, self.b.atomic_rmw("add", address, one, "monotonic"))

    @contextmanager
    def when(self, condition: Number) -> Iterator[None]:
        """Write the body for the case that a condition holds."""
        with self.b.if_then(condition.value):
            yield

    @contextmanager
    def each(self, count: Operand) -> Iterator[Number]:
        """A `loop` whose count may be 0."""
        with self.when(self.integer(count) > 0), self.loop(count) as index:
            yield index

    def either(self, condition: Number, first: Callable[[], object], second: Callable[[], object]) -> None:
        """Write one body for the case that a condition holds, and another one for the other case."""
        with self.b.if_else(condition.value) as (then, otherwise):
            with then:
                first()
            with otherwise:
                second()

    def switch(self, number: Number, cases: Mapping[int, Callable[[], object]]) -> None:
        """Write the body of each number; no other comes."""
        after = self.b.append_basic_block("after")
        switch = self.b.switch(number.value, after)
        for value, body in cases.items():
            block = self.b.append_basic_block(f"case {value}")
            switch.add_case(ir.Constant(I64, value), block)
            self.b.position_at_end(block)
            body()
            self.b.branch(after)
        self.b.position_at_end(after)

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
