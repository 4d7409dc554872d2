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
processor. With a vector, a scalar stands for a vector of it. Integers are not negative (`signed` says otherwise).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from llvmlite import ir

# Kernels find all parts of the language here.
from ketscale.engines.compiled.arrays import *  # noqa: F403
from ketscale.engines.compiled.arrays import Buffer, Lanes, Tree, Variable, product
from ketscale.engines.compiled.operators import *  # noqa: F403
from ketscale.engines.compiled.operators import I64, POINTER, Emitter, Number, Operand, select

# The first entries of the arguments' array are counters.
NEXT_TASK, NEXT_WORKER, COUNTERS = 0, 1, 2


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
            made = ir.GlobalVariable(self.module, array, full)
            made.linkage, made.global_constant = "internal", True
            made.initializer = ir.Constant(array, list(values))
        return Buffer(self, element, self.module.globals[full], (len(values),))

    # --- control flow ---

    @contextmanager
    def tasks(self, count: Operand) -> Iterator[Number]:
        """Write the body for an index from 0 to count - 1, of which threads take one after the other."""
        b = self.b
        test, body, done = (b.append_basic_block(name) for name in ("take", "taken", "done"))
        # Arguments are read before the loop, at the start of the function.
        end = self.integer(count)
        b.branch(test)
        b.position_at_end(test)
        index = self._counted(NEXT_TASK)
        b.cbranch((index < end).value, body, done)
        b.position_at_end(body)
        yield index
        b.branch(test)
        b.position_at_end(done)

    def take_again(self) -> None:
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
        found = self.b.switch(number.value, after)
        for value, body in cases.items():
            block = self.b.append_basic_block(f"case {value}")
            found.add_case(ir.Constant(I64, value), block)
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
