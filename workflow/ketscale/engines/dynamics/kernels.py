"""The compiled evolution of real linear systems, forward and backward, for `cpu`.

In each segment exp(G t) r is a polynomial of G t / s applied s times, by Horner's rule: with products of G and vectors
only, whose entries are written out, and the state in registers. The lanes of a vector hold tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ketscale.engines.compiled.language import (
    INTEGER,
    REAL,
    Arguments,
    Buffer,
    FunctionCode,
    Number,
    absolute,
    aligned,
    ceil,
    ceil_divided,
    chunk,
    fma,
    fnma,
    largest_lane,
    maximum,
    reals,
    select,
)
from ketscale.engines.dynamics.plan import BLOCK, EvolutionPlan

# steps: of a segment; not read where the norm decides. keep: 1 if the states before each segment are kept in `saved`, else 0.
# tau: duration of a segment. A stride is the distance of tasks in floats, 0 for what they share.
ARGUMENTS = {
    "batch groups segments steps keep": INTEGER,
    "tau": REAL,
    "fixed_stride controls_stride initial_stride cotangent_stride": INTEGER,
    "fixed": reals("batch", "fixed_stride"),
    "controls": reals("batch", "controls_stride"),
    "initial": reals("batch", "initial_stride"),
    "cotangent": reals("batch", "cotangent_stride"),
    "final to_initial": reals("batch", "size"),
    "to_fixed": reals("batch", "fixed_count"),
    "to_controls": reals("batch", "segments", "control_count"),
    "saved": aligned("groups", "segments", "changing"),
    "scratch": aligned("workers", "scratch_vectors"),
}

Vectors = dict[int, Number]  # by coordinate


def forward(k: FunctionCode, args: Arguments, plan: EvolutionPlan) -> None:
    """final <- the state of each task at the end; saved <- those before each segment."""
    with k.tasks(args.groups) as group:
        tasks = _Tasks(k, args, plan, group)
        state = k.variable({row: tasks.initial[row] for row in plan.forms.rows})
        with k.loop(args.segments) as number:
            with k.when(args.keep != 0):
                _store(args.saved[group, number], state.value)
            segment = _Segment(tasks, number)
            with k.loop(segment.most_steps) as step:
                state.value = segment.advanced(state.value, segment.scaled(step)[0])
        final = args.final[tasks.lanes]
        for row, value in {**tasks.constants, **state.value}.items():
            final[row] = value


def backward(k: FunctionCode, args: Arguments, plan: EvolutionPlan) -> None:
    """to_fixed, to_controls, to_initial <- the gradients, from `cotangent`, that by `final`."""
    terms, block = args.scratch[k.worker()].split((plan.degrees[-1], plan.changing), (BLOCK, plan.changing))
    nothing = [k.vector(0.0) for _ in plan.forms.terms]
    with k.tasks(args.groups) as group:
        tasks = _Tasks(k, args, plan, group)
        cotangent, to_controls = args.cotangent[tasks.lanes], args.to_controls[tasks.lanes]
        adjoint, totals = k.variable({row: cotangent[row] for row in range(plan.size)}), k.variable(nothing)
        with k.loop(args.segments, backwards=True) as number:
            segment = _Segment(tasks, number)
            to_forms = k.variable(nothing)
            with segment.steps_back(args.saved[group, number], block) as (step, state):
                scaled, part = segment.scaled(step)
                adjoint.value, to_scaled = segment.reversed(adjoint.value, state, scaled, terms)
                pairs = zip(to_scaled, to_forms.value, strict=True)
                to_forms.value = [fma(part, gradient, total) for gradient, total in pairs]
            totals.value = [a + b for a, b in zip(totals.value, to_forms.value, strict=True)]
            for control in range(plan.control_count):
                to_controls[number, control] = tasks.chained(to_forms.value, plan.fixed_count + control)
        to_fixed, to_initial = args.to_fixed[tasks.lanes], args.to_initial[tasks.lanes]
        for coefficient in range(plan.fixed_count):
            to_fixed[coefficient] = tasks.chained(totals.value, coefficient)
        for row, value in adjoint.value.items():
            to_initial[row] = value


class _Tasks:
    """The tasks of a group: their coefficients, and the coordinates that are constant."""

    def __init__(self, k: FunctionCode, args: Arguments, plan: EvolutionPlan, group: Number) -> None:
        self.k, self.args, self.plan = k, args, plan
        self.lanes, _ = k.lanes_of(group, args.batch)
        self.tau = args.tau.splat()
        fixed = args.fixed[self.lanes]
        scaled = {number: self.tau * fixed[number] for number in range(plan.fixed_count)}
        self._fixed_parts = [_sum(terms, scaled) for terms in plan.forms.terms]
        self._controls = args.controls[self.lanes].part((), args.segments, plan.control_count)
        self.initial = args.initial[self.lanes]
        self.constants = {row: self.initial[row] for row in range(plan.size) if row not in plan.forms.rows}

    def forms(self, segment: Number) -> list[Number]:
        """The forms of a segment, times tau."""
        scaled = {
            self.plan.fixed_count + number: self.tau * self._controls[segment, number]
            for number in range(self.plan.control_count)
        }
        pairs = zip(self.plan.forms.terms, self._fixed_parts, strict=True)
        return [_sum(terms, scaled, part) for terms, part in pairs]  # type: ignore[misc]

    def chained(self, gradients: list[Number], coefficient: int) -> Number:
        """The gradient by a coefficient, from those by the forms."""
        by_form = dict(enumerate(gradients))
        terms = [
            (form, value)
            for form, each in enumerate(self.plan.forms.terms)
            for number, value in each
            if number == coefficient
        ]
        total = _sum(terms, by_form)
        return self.k.vector(0.0) if total is None else self.tau * total


class _Segment:
    """A segment of a group's tasks: its forms, times tau, and how it is divided.

    steps, part, degree: how many steps each task takes, which part of the segment a step is, and the degree of its
    polynomial. most_steps, most_terms: the largest of the group, as integers.
    """

    def __init__(self, tasks: _Tasks, number: Number) -> None:
        self.k, self.plan, self.constants = tasks.k, tasks.plan, tasks.constants
        self.forms = tasks.forms(number)
        if self.plan.reaches:
            self._divide()
        else:
            self.most_steps, self.most_terms = tasks.args.steps, self.k.integer(self.plan.degrees[0])
            self.part = 1.0 / self.most_steps.as_float().splat()

    def _divide(self) -> None:
        """Decide by the norm of G t, which is at most the largest sum of its entries' sizes in a row."""
        plan = self.plan
        sums: Vectors = {}
        for row, _, form, _ in plan.forms.entries:
            if row < plan.generators.normed_rows:
                size = absolute(self.forms[form])
                sums[row] = sums[row] + size if row in sums else size
        norm = self.k.vector(0.0)
        for each in sums.values():
            norm = maximum(each, norm)
        small = norm <= plan.largest_norm
        steps = ceil(norm * (1 / plan.reaches[-1]))
        self.steps = select(small & (steps > 1.0), steps, 1.0)
        self.part = select(small, 1.0 / self.steps, math.nan)
        length, self.degree = norm * self.part, self.k.vector(plan.degrees[0])
        for degree, before in zip(plan.degrees[1:], plan.reaches, strict=False):
            self.degree = select(length > before, float(degree), self.degree)
        self.most_steps, self.most_terms = (
            largest_lane(each).as_integer() for each in (self.steps, self.degree)
        )

    def scaled(self, step: Number) -> tuple[list[Number], Number]:
        """The forms of a step, and their ratio to those of the segment: 0 in tasks that have fewer steps."""
        part = self.part
        if self.plan.reaches:
            part = select(step.as_float().splat() < self.steps, part, 0.0)
        return [part * form for form in self.forms], part

    def advanced(self, state: Vectors, scaled: list[Number], terms: Buffer | None = None) -> Vectors:
        """The state after a step; what Horner's rule multiplies by G is kept in `terms`, if given."""
        horner = self.k.variable(state)
        with self.k.loop(self.most_terms, backwards=True) as term:
            inverse, now = self._inverse(term), horner.value
            if terms is not None:
                _store(terms[term], now)
            image = self._product(scaled, {**self.constants, **now})
            horner.value = {row: fma(image[row], inverse, state[row]) for row in self.plan.forms.rows}
        found: Vectors = horner.value
        return found

    def reversed(
        self, adjoint: Vectors, state: Vectors, scaled: list[Number], terms: Buffer
    ) -> tuple[Vectors, list[Number]]:
        """The adjoint before a step that begins in `state`, and the gradients by the step's forms."""
        k, rows, zero = self.k, self.plan.forms.rows, self.k.vector(0.0)
        self.advanced(state, scaled, terms)
        gradients = k.variable([zero for _ in scaled])
        power, total = k.variable(adjoint), k.variable(adjoint)
        with k.loop(self.most_terms) as term:
            inverse, now = self._inverse(term), power.value
            factors = {row: inverse * now[row] for row in rows}
            gradients.value = self._outer(
                gradients.value, factors, {**self.constants, **_load(terms[term], rows)}
            )
            image = self._transposed_product(scaled, factors)
            power.value = {row: image.get(row, zero) for row in adjoint}
            total.value = {row: value + image.get(row, zero) for row, value in total.value.items()}
        return total.value, gradients.value

    @contextmanager
    def steps_back(self, start: Buffer, block: Buffer) -> Iterator[tuple[Number, Vectors]]:
        """Write the body for each step, the last one first, and the state before it.

        The states within a block of steps are computed again from the one before the segment, `start`.
        """
        k, rows = self.k, self.plan.forms.rows
        with k.loop(ceil_divided(self.most_steps, BLOCK), backwards=True) as number:
            first, count = chunk(number, BLOCK, self.most_steps)
            state = k.variable(_load(start, rows))
            with k.each(first) as step:
                state.value = self.advanced(state.value, self.scaled(step)[0])
            with k.each(count - 1) as own:
                _store(block[own], state.value)
                state.value = self.advanced(state.value, self.scaled(first + own)[0])
            _store(block[count - 1], state.value)
            with k.loop(count, backwards=True) as own:
                yield first + own, _load(block[own], rows)

    def _inverse(self, term: Number) -> Number:
        """1 / (term + 1), or 0 in tasks whose degree is not larger than `term`."""
        inverses = self.k.table("inverses", [1 / number for number in range(1, self.plan.degrees[-1] + 1)])
        inverse: Number = inverses[term].splat()
        if len(self.plan.degrees) == 1:
            return inverse
        return select((term + 1).as_float().splat() <= self.degree, inverse, 0.0)

    def _product(self, forms: list[Number], vectors: Vectors) -> Vectors:
        """G times a vector, its rows with entries."""
        made: Vectors = {}
        for row, column, form, negative in self.plan.forms.entries:
            made[row] = _added(negative, forms[form], vectors[column], made.get(row))
        return made

    def _transposed_product(self, forms: list[Number], vectors: Vectors) -> Vectors:
        """The transpose of G times a vector, its nonzero coordinates."""
        made: Vectors = {}
        for row, column, form, negative in self.plan.forms.entries:
            made[column] = _added(negative, forms[form], vectors[row], made.get(column))
        return made

    def _outer(self, gradients: list[Number], left: Vectors, right: Vectors) -> list[Number]:
        """Gradients by the forms, with those of left^T G right added."""
        found = list(gradients)
        for row, column, form, negative in self.plan.forms.entries:
            found[form] = _added(negative, left[row], right[column], found[form])
        return found


def _added(negative: bool, a: Number, b: Number, total: Number | None) -> Number:
    """total + a b, or total - a b; no total is 0."""
    made: Number = (fnma if negative else fma)(a, b, total)
    return made


def _sum(
    terms: Iterable[tuple[int, float]], vectors: dict[int, Number], total: Number | None = None
) -> Number | None:
    """The sum of values times those vectors that there are, and of a total."""
    for number, value in terms:
        if number in vectors:
            total = fma(value, vectors[number], total)
    return total


def _store(place: Buffer, values: Vectors) -> None:
    """Store the changing coordinates side by side."""
    for number, value in enumerate(values.values()):
        place[number] = value


def _load(place: Buffer, rows: list[int]) -> Vectors:
    """What `_store` has stored."""
    return {row: place[number] for number, row in enumerate(rows)}
