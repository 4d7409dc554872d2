"""Writes the machine code that evolves real linear systems, forward and backward, for `cpu`.

In each segment exp(G t) r is a polynomial of G t / s applied s times, by Horner's rule: with products of G and vectors
only, whose entries are unrolled, and the state in registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from ketscale.engines.compiled.vector import I64, Value
from ketscale.engines.dynamics.lanes import Lanes, Variables, Vectors
from ketscale.engines.dynamics.plan import ARGUMENTS, BLOCK, LARGEST_NORM, Plan


def module(plan: Plan) -> ir.Module:
    """The functions `forward` and `backward`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_dynamics")
    _Evolution(written, "forward", plan).forward()
    _Evolution(written, "backward", plan).backward()
    return written


class _Evolution(Lanes):
    """Writes the evolution of groups of tasks, one group a vector, or its backward pass, for every thread."""

    def __init__(self, module: ir.Module, name: str, plan: Plan) -> None:
        super().__init__(module, name, plan)
        w, self.forms, self.size = self.w, plan.forms, plan.generators.size
        numbers = range(len(self.forms.terms))
        self.state, self.horner = Variables(w, self.rows), Variables(w, self.rows)
        self.adjoint, self.power = (Variables(w, range(self.size)) for _ in range(2))
        self.to_scaled, self.to_forms, self.sums = (Variables(w, numbers) for _ in range(3))
        tau = w.b.load(w.argument_address(ARGUMENTS.index("tau")), typ=ir.DoubleType())
        self.tau = w.splat(tau if plan.double else w.b.fptrunc(tau, w.real))
        # 1, 1 / 2, 1 / 3, ...
        self.inverses = w.table("inverses", w.real, [1 / k for k in range(1, plan.degrees[-1] + 1)])

    def splat(self, integer: Value) -> Value:
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
        lanes = self.addresses("fixed", self.argument("fixed_stride"))
        fixed = [w.b.fmul(self.tau, self.gather(lanes, number)) for number in range(self.forms.fixed)]
        self.constant_parts = [
            self._sum((value, fixed[number]) for number, value in terms if number < self.forms.fixed)
            for terms in self.forms.terms
        ]
        self.controls = self.addresses("controls", self.argument("controls_stride"))
        self.initial = self.addresses("initial", self.argument("initial_stride"))
        self.constants = {
            row: self.gather(self.initial, row) for row in range(self.size) if row not in self.rows
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
                self.tau, self.gather(self.controls, self._control_index(segment, number))
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
            self.most_steps = self.argument("steps")
            self.steps = self.splat(self.most_steps)
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
            part = b.select(b.fcmp_ordered("<", self.splat(step), self.steps), part, self.w.constant(0.0))
        return [b.fmul(part, form) for form in forms], part

    def _inverse(self, k: Value) -> Value:
        """1 / k for term k of the polynomial, 0 in tasks whose degree is lower."""
        w, b = self.w, self.w.b
        inverse = w.load_splat(w.element(self.inverses, b.sub(k, w.integer(1))))
        if len(self.plan.degrees) == 1:
            return inverse
        return b.select(b.fcmp_ordered("<=", self.splat(k), self.degree), inverse, w.constant(0.0))

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
                self.keep(now, self._term(k))
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
            terms = {**self.constants, **self.kept(self._term(k))}
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

    def forward(self) -> None:
        """The final state of every task, and the states before each segment if wanted."""
        w, b = self.w, self.w.b
        wanted = b.icmp_unsigned("!=", self.argument("saved"), w.integer(0))
        with self.groups():
            self._read_fixed()
            self.state.set({row: self.gather(self.initial, row) for row in self.rows})
            with w.loop(self.segments) as segment:
                with b.if_then(wanted):
                    self.keep(self.state.get(), self.saved(segment))
                forms = self._segment_forms(segment)
                self._divide(forms)
                with w.loop(self.most_steps) as step:
                    self._advance(self._scaled(forms, step)[0])
            final = self.addresses("final", w.integer(self.size))
            for row, value in {**self.constants, **self.state.get()}.items():
                self.scatter(value, final, row)

    def backward(self) -> None:
        """All gradients."""
        w, b = self.w, self.w.b
        with self.groups():
            self._read_fixed()
            cotangents = self.addresses("cotangent", self.argument("cotangent_stride"))
            self.adjoint.set({row: self.gather(cotangents, row) for row in range(self.size)})
            self.sums.zero()
            to_controls = self.addresses("to_controls", b.mul(self.segments, w.integer(self._controlled)))
            with w.loop(self.segments) as index:
                segment = b.sub(b.sub(self.segments, w.integer(1)), index)
                self.to_forms.zero()
                self._segment_back(segment)
                gradients = self.to_forms.get()
                self.sums.set({n: b.fadd(total, gradients[n]) for n, total in self.sums.get().items()})
                for number in range(self._controlled):
                    total = self._chained(gradients, self.forms.fixed + number)
                    self.scatter(total, to_controls, self._control_index(segment, number))
            to_fixed, to_initial = (
                self.addresses(name, w.integer(size))
                for name, size in (("to_fixed", self.forms.fixed), ("to_initial", self.size))
            )
            totals = self.sums.get()
            for number in range(self.forms.fixed):
                self.scatter(self._chained(totals, number), to_fixed, number)
            for row, value in self.adjoint.get().items():
                self.scatter(value, to_initial, row)

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
            self.state.set(self.kept(self.saved(segment)))
            with b.if_then(b.icmp_unsigned(">", first, w.integer(0))), w.loop(first) as step:
                self._advance(self._scaled(forms, step)[0])
            before_last = b.sub(count, w.integer(1))
            with b.if_then(b.icmp_unsigned(">", count, w.integer(1))), w.loop(before_last) as number:
                self.keep(self.state.get(), self._block(number))
                self._advance(self._scaled(forms, b.add(first, number))[0])
            self.keep(self.state.get(), self._block(before_last))
            with w.loop(count) as index:
                number = b.sub(before_last, index)
                self.state.set(self.kept(self._block(number)))
                self._reverse(*self._scaled(forms, b.add(first, number)))

    def _block(self, number: Value) -> Value:
        return self.w.at(self.blocks, self.w.b.mul(number, self.w.integer(len(self.rows))))
