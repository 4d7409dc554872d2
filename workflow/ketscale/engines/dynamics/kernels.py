"""Writes the machine code that evolves real linear systems, forward and backward, for `evolution`.

The lanes of a vector hold tasks. In each segment exp(G t) r is a polynomial of G t / s applied s times, by Horner's rule:
with products of G and vectors only, whose entries are unrolled, and the state in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from ketscale.engines.compiled.vector import I32, I64, Value, Writer
from ketscale.engines.dynamics.generators import Generators

ARGUMENTS = (
    "next_group", "next_worker",  # counters, 0 at the start
    "batch", "groups", "segments",
    "tau",  # duration of a segment: the bits of a double
    "steps",  # in a segment; not read where the norm decides
    "fixed", "fixed_stride",  # (tasks, F), with the distance of tasks in floats, here and below
    "controls", "controls_stride",  # (tasks, segments, K)
    "initial", "initial_stride",  # (tasks, size)
    "final",  # (tasks, size)
    "saved",  # states before each segment, (groups, segments, rows, lanes); 0: not wanted
    "cotangent", "cotangent_stride",  # of final
    "to_fixed", "to_controls", "to_initial",  # gradients, (tasks, ...)
    "scratch",  # address, of `Plan.scratch_vectors` for each worker
)  # fmt: skip

# States of so many steps of a segment are kept in the backward pass; with more, it recomputes them in blocks.
BLOCK = 32

# Largest norm of G t over a segment; beyond it the result is not a number.
LARGEST_NORM = 1e4


@dataclass(frozen=True)
class Plan:
    """What the code is written for; `lanes` is the number of floats in a vector.

    degrees, reaches: see `evolution.Division`.
    """

    generators: Generators
    degrees: tuple[int, ...]
    reaches: tuple[float, ...]
    double: bool
    lanes: int

    @cached_property
    def forms(self) -> Forms:
        """The entries of G."""
        return Forms(self.generators)

    @property
    def scratch_vectors(self) -> int:
        """Vectors of a worker's scratch memory in the backward pass."""
        return (self.degrees[-1] + BLOCK) * len(self.forms.rows)

    @property
    def multiplications(self) -> int:
        """Of one step of one task, in the forward pass."""
        return self.degrees[-1] * (len(self.forms.entries) + len(self.forms.rows))


class Forms:
    """The entries of G as linear forms of the coefficients, equal ones shared, whatever their sign.

    terms: of each form, (coefficient, value) with coefficients numbered through `fixed` and `controlled`.
    entries: (row, column, form, whether it is negative). rows: those with entries; other coordinates are constant.
    """

    def __init__(self, generators: Generators) -> None:
        self.fixed = len(generators.fixed)
        sums: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for number, matrix in enumerate((*generators.fixed, *generators.controlled)):
            for row, column, value in matrix:
                sums.setdefault((row, column), []).append((number, value))
        numbers: dict[tuple[tuple[int, float], ...], int] = {}
        self.entries: list[tuple[int, int, int, bool]] = []
        for (row, column), terms in sorted(sums.items()):
            negative = terms[0][1] < 0
            key = tuple((number, -value if negative else value) for number, value in terms)
            self.entries.append((row, column, numbers.setdefault(key, len(numbers)), negative))
        self.terms = list(numbers)
        self.rows = sorted({row for row, *_ in self.entries})


def module(plan: Plan) -> ir.Module:
    """The functions `forward` and `backward`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_dynamics")
    _Evolution(written, "forward", plan).forward()
    _Evolution(written, "backward", plan).backward()
    return written


Vectors = dict[int, Value]  # by coordinate


class _Variables:
    """Vectors that loops change; LLVM keeps them in registers where it can."""

    def __init__(self, w: Writer, keys: Sequence[int]) -> None:
        self.w = w
        self._at = {key: w.b.alloca(w.vector) for key in keys}

    def get(self) -> Vectors:
        return {key: self.w.b.load(at, typ=self.w.vector) for key, at in self._at.items()}

    def set(self, values: Vectors) -> None:
        for key, at in self._at.items():
            self.w.b.store(values[key], at)

    def zero(self) -> None:
        self.set(dict.fromkeys(self._at, self.w.constant(0.0)))


class _Evolution:
    """Writes the evolution of groups of tasks, one group a vector, or its backward pass, for every thread."""

    def __init__(self, module: ir.Module, name: str, plan: Plan) -> None:
        self.plan, self.forms, self.size = plan, plan.forms, plan.generators.size
        self.w = w = Writer(module, name, plan.lanes, plan.double)
        self.rows, self.numbers = self.forms.rows, range(len(self.forms.terms))
        self.state, self.horner = _Variables(w, self.rows), _Variables(w, self.rows)
        self.adjoint, self.power = (_Variables(w, range(self.size)) for _ in range(2))
        self.to_scaled, self.to_forms, self.sums = (_Variables(w, self.numbers) for _ in range(3))
        self.segments = self._argument("segments")
        tau = w.b.load(w.argument_address(ARGUMENTS.index("tau")), typ=ir.DoubleType())
        self.tau = w.splat(tau if plan.double else w.b.fptrunc(tau, w.real))
        # 1, 1 / 2, 1 / 3, ...
        self.inverses = w.table("inverses", w.real, [1 / k for k in range(1, plan.degrees[-1] + 1)])

    # --- memory ---

    def _argument(self, name: str, pointer: bool = False) -> Value:
        return self.w.argument(ARGUMENTS.index(name), pointer)

    @contextmanager
    def _groups(self) -> Iterator[None]:
        """Write the body for each group of tasks that this worker takes."""
        w, b = self.w, self.w.b
        worker = b.atomic_rmw(
            "add", w.argument_address(ARGUMENTS.index("next_worker")), w.integer(1), "monotonic"
        )
        scratch = w.at(self._argument("scratch", True), b.mul(worker, w.integer(self.plan.scratch_vectors)))
        self.terms, self.blocks = scratch, w.at(scratch, self.plan.degrees[-1] * len(self.rows))
        test, body, done = (b.append_basic_block(name) for name in ("next_group", "group", "done"))
        b.branch(test)
        b.position_at_end(test)
        counter = w.argument_address(ARGUMENTS.index("next_group"))
        self.group = b.atomic_rmw("add", counter, w.integer(1), "monotonic")
        b.cbranch(b.icmp_unsigned("<", self.group, self._argument("groups")), body, done)
        b.position_at_end(body)
        last = b.sub(self._argument("batch"), w.integer(1))
        first = b.mul(self.group, w.integer(w.lanes))
        self.tasks = []
        for lane in range(w.lanes):
            # The lanes after the last task repeat it, and store the same numbers once more.
            task = b.add(first, w.integer(lane))
            self.tasks.append(b.select(b.icmp_unsigned("<", task, last), task, last))
        yield
        b.branch(test)
        b.position_at_end(done)
        b.ret_void()

    def _lanes(self, name: str, stride: Value) -> list[Value]:
        """The addresses of the tasks' first floats in an array."""
        base = self._argument(name, True)
        return [self.w.element(base, self.w.b.mul(task, stride)) for task in self.tasks]

    def _gather(self, lanes: Sequence[Value], index: Value | int) -> Value:
        """The float at an index of each task."""
        w = self.w
        vector = ir.Constant(w.vector, ir.Undefined)
        for lane, base in enumerate(lanes):
            vector = w.b.insert_element(vector, w.load_real(w.element(base, index)), ir.Constant(I32, lane))
        return vector

    def _scatter(self, vector: Value, lanes: Sequence[Value], index: Value | int) -> None:
        w = self.w
        for lane, base in enumerate(lanes):
            value = w.b.extract_element(vector, ir.Constant(I32, lane))
            w.b.store(value, w.element(base, index), align=w.bytes)

    def _keep(self, values: Vectors, at: Value) -> None:
        for number, row in enumerate(self.rows):
            self.w.store(values[row], self.w.at(at, number), self._align)

    def _kept(self, at: Value) -> Vectors:
        return {row: self.w.load(self.w.at(at, number), self._align) for number, row in enumerate(self.rows)}

    @property
    def _align(self) -> int:
        """torch aligns what it allocates to 64 bytes."""
        return min(64, self.w.lanes * self.w.bytes)

    def _saved(self, segment: Value) -> Value:
        w = self.w
        place = w.b.add(w.b.mul(self.group, self.segments), segment)
        return w.at(self._argument("saved", True), w.b.mul(place, w.integer(len(self.rows))))

    # --- mathematics ---

    def _splat(self, integer: Value) -> Value:
        return self.w.splat(self.w.b.sitofp(integer, self.w.real))

    def _intrinsic(self, name: str, vector: Value, result: ir.Type | None = None) -> Value:
        w = self.w
        full = f"llvm.{name}.v{w.lanes}f{8 * w.bytes}"
        function = w.module.globals.get(full)
        if function is None:
            function = ir.Function(w.module, ir.FunctionType(result or w.vector, [w.vector]), full)
        return w.b.call(function, [vector])

    def _read_fixed(self) -> None:
        """The part of each form that is the same in all segments, times tau, and constant coordinates."""
        w = self.w
        lanes = self._lanes("fixed", self._argument("fixed_stride"))
        fixed = [w.b.fmul(self.tau, self._gather(lanes, number)) for number in range(self.forms.fixed)]
        self.constant_parts = [
            self._sum((value, fixed[number]) for number, value in terms if number < self.forms.fixed)
            for terms in self.forms.terms
        ]
        self.controls = self._lanes("controls", self._argument("controls_stride"))
        self.initial = self._lanes("initial", self._argument("initial_stride"))
        self.constants = {
            row: self._gather(self.initial, row) for row in range(self.size) if row not in self.rows
        }

    def _sum(self, terms: Iterator[tuple[float, Value]], start: Value | None = None) -> Value | None:
        for value, vector in terms:
            start = self.w.fma(self.w.constant(value), vector, start)
        return start

    @property
    def _controlled(self) -> int:
        return len(self.plan.generators.controlled)

    def _control_index(self, segment: Value, number: int) -> Value:
        b, w = self.w.b, self.w
        return b.add(b.mul(segment, w.integer(self._controlled)), w.integer(number))

    def _segment_forms(self, segment: Value) -> list[Value]:
        """The forms of a segment, times tau."""
        w = self.w
        controls = {
            self.forms.fixed + number: w.b.fmul(
                self.tau, self._gather(self.controls, self._control_index(segment, number))
            )
            for number in range(self._controlled)
        }
        return [
            self._sum(((value, controls[number]) for number, value in terms if number in controls), constant)
            for terms, constant in zip(self.forms.terms, self.constant_parts, strict=True)
        ]

    def _divide(self, forms: list[Value]) -> None:
        """Decide how the segment with these forms is divided: `steps`, their `part` of it and their `degree`, by task.

        `most_steps` and `most_terms` are the largest of the group, as integers.
        """
        w, b, one = self.w, self.w.b, self.w.constant(1.0)
        if not self.plan.reaches:
            self.most_steps = self._argument("steps")
            self.steps = self._splat(self.most_steps)
            self.part = b.fdiv(one, self.steps)
            self.most_terms = w.integer(self.plan.degrees[0])
            return
        sums: Vectors = {}
        for row, _, form, _ in self.forms.entries:
            if row < self.plan.generators.normed_rows:
                size = self._intrinsic("fabs", forms[form])
                sums[row] = b.fadd(sums[row], size) if row in sums else size
        norm = w.constant(0.0)
        for each in sums.values():
            norm = b.select(b.fcmp_ordered(">", each, norm), each, norm)
        small = b.fcmp_ordered("<=", norm, w.constant(LARGEST_NORM))
        steps = self._intrinsic("ceil", b.fmul(norm, w.constant(1 / self.plan.reaches[-1])))
        self.steps = b.select(b.and_(small, b.fcmp_ordered(">", steps, one)), steps, one)
        self.part = b.select(small, b.fdiv(one, self.steps), w.constant(float("nan")))
        self.degree = w.constant(self.plan.degrees[0])
        stepped = b.fmul(norm, self.part)
        for degree, before in zip(self.plan.degrees[1:], self.plan.reaches, strict=False):
            larger = b.fcmp_ordered(">", stepped, w.constant(before))
            self.degree = b.select(larger, w.constant(degree), self.degree)
        self.most_steps, self.most_terms = self._largest(self.steps), self._largest(self.degree)

    def _largest(self, vector: Value) -> Value:
        """The largest of a vector's whole numbers."""
        return self.w.b.fptosi(self._intrinsic("vector.reduce.fmax", vector, self.w.real), I64)

    def _scaled(self, forms: list[Value], step: Value) -> tuple[list[Value], Value]:
        """The forms of a step, and their ratio to those of the segment: 0 in tasks that have fewer steps."""
        b, part = self.w.b, self.part
        if self.plan.reaches:
            part = b.select(b.fcmp_ordered("<", self._splat(step), self.steps), part, self.w.constant(0.0))
        return [b.fmul(part, form) for form in forms], part

    def _inverse(self, k: Value) -> Value:
        """1 / k for term k of the polynomial, 0 in tasks whose degree is lower."""
        w, b = self.w, self.w.b
        inverse = w.load_splat(w.element(self.inverses, b.sub(k, w.integer(1))))
        if len(self.plan.degrees) == 1:
            return inverse
        return b.select(b.fcmp_ordered("<=", self._splat(k), self.degree), inverse, w.constant(0.0))

    def _product(self, forms: list[Value], vectors: Vectors) -> Vectors:
        """G times a vector, its rows with entries."""
        made: Vectors = {}
        for row, column, form, negative in self.forms.entries:
            made[row] = self._add(made.get(row), forms[form], vectors[column], negative)
        return made

    def _transposed_product(self, forms: list[Value], vectors: Vectors) -> Vectors:
        """The transpose of G times a vector, its nonzero coordinates."""
        made: Vectors = {}
        for row, column, form, negative in self.forms.entries:
            made[column] = self._add(made.get(column), forms[form], vectors[row], negative)
        return made

    def _add(self, total: Value | None, form: Value, vector: Value, negative: bool) -> Value:
        return self.w.fma(form, vector, total, negate=negative)

    def _advance(self, scaled: list[Value], keep: bool = False) -> None:
        """One step of `state`; what Horner's rule multiplies by G is kept in `terms` if wanted."""
        w, b = self.w, self.w.b
        start = self.state.get()
        self.horner.set(start)
        with w.loop(self.most_terms) as number:
            k = b.sub(self.most_terms, number)
            inverse, now = self._inverse(k), self.horner.get()
            if keep:
                self._keep(now, self._term(k))
            image = self._product(scaled, {**self.constants, **now})
            self.horner.set({row: w.fma(image[row], inverse, start[row]) for row in self.rows})
        self.state.set(self.horner.get())

    def _reverse(self, scaled: list[Value], part: Value) -> None:
        """One step back of `adjoint`, whose step began in `state`; adds to the gradients by the segment's forms."""
        w, b = self.w, self.w.b
        self._advance(scaled, keep=True)
        zero = w.constant(0.0)
        self.to_scaled.zero()
        self.power.set(self.adjoint.get())
        with w.loop(self.most_terms) as number:
            k = b.add(number, w.integer(1))
            inverse, power = self._inverse(k), self.power.get()
            factors = {row: b.fmul(inverse, power[row]) for row in self.rows}
            terms = {**self.constants, **self._kept(self._term(k))}
            gradients = self.to_scaled.get()
            for row, column, form, negative in self.forms.entries:
                gradients[form] = w.fma(factors[row], terms[column], gradients[form], negate=negative)
            self.to_scaled.set(gradients)
            image = self._transposed_product(scaled, factors)
            image = {row: image.get(row, zero) for row in range(self.size)}
            self.power.set(image)
            adjoint = self.adjoint.get()
            self.adjoint.set({row: b.fadd(adjoint[row], image[row]) for row in range(self.size)})
        totals = self.to_forms.get()
        self.to_forms.set({n: w.fma(part, each, totals[n]) for n, each in self.to_scaled.get().items()})

    def _term(self, k: Value) -> Value:
        b, w = self.w.b, self.w
        return w.at(self.terms, b.mul(b.sub(k, w.integer(1)), w.integer(len(self.rows))))

    # --- the two functions ---

    def forward(self) -> None:
        """The final state of every task, and the states before each segment if wanted."""
        w, b = self.w, self.w.b
        wanted = b.icmp_unsigned("!=", self._argument("saved"), w.integer(0))
        with self._groups():
            self._read_fixed()
            self.state.set({row: self._gather(self.initial, row) for row in self.rows})
            with w.loop(self.segments) as segment:
                with b.if_then(wanted):
                    self._keep(self.state.get(), self._saved(segment))
                forms = self._segment_forms(segment)
                self._divide(forms)
                with w.loop(self.most_steps) as step:
                    self._advance(self._scaled(forms, step)[0])
            final = self._lanes("final", w.integer(self.size))
            for row, value in {**self.constants, **self.state.get()}.items():
                self._scatter(value, final, row)

    def backward(self) -> None:
        """All gradients."""
        w, b = self.w, self.w.b
        with self._groups():
            self._read_fixed()
            cotangents = self._lanes("cotangent", self._argument("cotangent_stride"))
            self.adjoint.set({row: self._gather(cotangents, row) for row in range(self.size)})
            self.sums.zero()
            to_controls = self._lanes("to_controls", b.mul(self.segments, w.integer(self._controlled)))
            with w.loop(self.segments) as index:
                segment = b.sub(b.sub(self.segments, w.integer(1)), index)
                self.to_forms.zero()
                self._segment_back(segment)
                gradients = self.to_forms.get()
                self.sums.set({n: b.fadd(total, gradients[n]) for n, total in self.sums.get().items()})
                for number in range(self._controlled):
                    total = self._chained(gradients, self.forms.fixed + number)
                    self._scatter(total, to_controls, self._control_index(segment, number))
            to_fixed, to_initial = (
                self._lanes(name, w.integer(size))
                for name, size in (("to_fixed", self.forms.fixed), ("to_initial", self.size))
            )
            totals = self.sums.get()
            for number in range(self.forms.fixed):
                self._scatter(self._chained(totals, number), to_fixed, number)
            for row, value in self.adjoint.get().items():
                self._scatter(value, to_initial, row)

    def _chained(self, gradients: Vectors, number: int) -> Value:
        """The gradient by a coefficient, from those by the forms."""
        terms = (
            (value, gradients[form])
            for form, each in enumerate(self.forms.terms)
            for coefficient, value in each
            if coefficient == number
        )
        total = self._sum(terms)
        return self.w.constant(0.0) if total is None else self.w.b.fmul(self.tau, total)

    def _segment_back(self, segment: Value) -> None:
        """Back through a segment in blocks of steps; the states within a block are recomputed from the segment's start."""
        w, b = self.w, self.w.b
        forms = self._segment_forms(segment)
        self._divide(forms)
        most, size = self.most_steps, w.integer(BLOCK)
        blocks = b.udiv(b.add(most, w.integer(BLOCK - 1)), size)
        with w.loop(blocks) as index:
            first = b.mul(b.sub(b.sub(blocks, w.integer(1)), index), size)
            left = b.sub(most, first)
            count = b.select(b.icmp_unsigned("<", left, size), left, size)
            self.state.set(self._kept(self._saved(segment)))
            with b.if_then(b.icmp_unsigned(">", first, w.integer(0))), w.loop(first) as step:
                self._advance(self._scaled(forms, step)[0])
            before_last = b.sub(count, w.integer(1))
            with b.if_then(b.icmp_unsigned(">", count, w.integer(1))), w.loop(before_last) as number:
                self._keep(self.state.get(), self._block(number))
                self._advance(self._scaled(forms, b.add(first, number))[0])
            self._keep(self.state.get(), self._block(before_last))
            with w.loop(count) as index:
                number = b.sub(before_last, index)
                self.state.set(self._kept(self._block(number)))
                self._reverse(*self._scaled(forms, b.add(first, number)))

    def _block(self, number: Value) -> Value:
        return self.w.at(self.blocks, self.w.b.mul(number, self.w.integer(len(self.rows))))
