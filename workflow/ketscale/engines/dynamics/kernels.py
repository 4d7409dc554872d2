"""The compiled evolution of real linear systems, forward and backward, which read the system from a table.

In each segment exp(G t) r is a polynomial of G t / s applied s times, by Horner's rule: with products of G and vectors
only, whose entries are looked up in the lists of `plan.table`. The lanes of a vector hold tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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
    integers,
    largest_lane,
    maximum,
    reals,
    select,
)

# States of so many steps of a segment are kept in the backward pass; with more, it recomputes them in blocks.
BLOCK = 256

# steps: of a segment; ignored where the norm sets them. keep: 1 to keep the states before each segment in `saved`, else 0.
# each_end: 1 if `cotangent` is that of a trajectory, the start and the end of each segment, and 0 if that of `final`.
# tau: duration of a segment. A stride is the distance of tasks in floats, 0 for what they share.
# per_reach, largest_norm: 0 and infinity where the division says how many steps a segment takes. Lists of the forms, rows,
# columns and coefficients begin where their `starts` say; `by_row` has column and signed form, `by_column` row and signed
# form, `by_form` row and column. A form's number plus the number of forms means its negative.
ARGUMENTS = {
    "batch groups segments steps keep each_end": INTEGER,
    "tau": REAL,
    "fixed_stride controls_stride initial_stride cotangent_stride": INTEGER,
    "fixed": reals("batch", "fixed_stride"),
    "controls": reals("batch", "controls_stride"),
    "initial": reals("batch", "initial_stride"),
    "cotangent": reals("batch", "cotangent_stride"),
    "final to_initial": reals("batch", "size"),
    "to_fixed": reals("batch", "fixed_count"),
    "to_controls": reals("batch", "segments", "control_count"),
    "saved": aligned("groups", "segments", "size"),
    "scratch": aligned("workers", "scratch_vectors"),
    "size fixed_count control_count scratch_vectors": INTEGER,
    "coefficients forms normed_rows reaching most_degree": INTEGER,
    "per_reach largest_norm": REAL,
    "degrees reaches": reals("reaching"),
    "inverses": reals("most_degree"),
    "term_starts row_starts column_starts form_starts coefficient_starts": integers("size"),
    "terms chained": integers("terms"),
    "term_values chained_values": reals("terms"),
    "by_row by_column by_form": integers("entries", 2),
    "signs": reals("entries"),
}


def forward(k: FunctionCode, args: Arguments) -> None:
    """final <- the state of each task at the end; saved <- those before each segment."""
    state, values, forms, scaled, terms = args.scratch[k.worker()].split(
        (args.size,), (args.coefficients,), (args.forms,), (args.forms * 2,), (2, args.size)
    )
    with k.tasks(args.groups) as group:
        tasks = _Tasks(k, args, group, values, forms, scaled)
        _copy(tasks, args.initial[tasks.lanes], state)
        with k.loop(args.segments) as number:
            with k.when(args.keep != 0):
                _copy(tasks, state, args.saved[group, number])
            segment = _Segment(tasks, number)
            with k.loop(segment.most_steps) as step:
                segment.scale(step)
                segment.advance(state, terms, alternating=True)
        _copy(tasks, state, args.final[tasks.lanes])


def backward(k: FunctionCode, args: Arguments) -> None:
    """to_fixed, to_controls, to_initial <- the gradients, from `cotangent`."""
    size, count = args.size, args.forms
    (
        adjoint, state, factors, power, values, forms, scaled, gradients, to_forms, totals, block, terms
    ) = args.scratch[k.worker()].split(
        (size,), (size,), (size,), (size,), (args.coefficients,), (count,), (count * 2,), (count,), (count,), (count,),
        (BLOCK, size), (args.most_degree + 1, size),
    )  # fmt: skip
    with k.tasks(args.groups) as group:
        tasks = _Tasks(k, args, group, values, forms, scaled)
        cotangents = args.cotangent[tasks.lanes].part((), args.segments + 1, size)
        _copy(tasks, cotangents[args.each_end * args.segments], adjoint)
        to_fixed, to_controls = args.to_fixed[tasks.lanes], args.to_controls[tasks.lanes]
        totals.zero(count)
        with k.loop(args.segments, backwards=True) as number:
            segment = _Segment(tasks, number)
            to_forms.zero(count)
            with segment.steps_back(args.saved[group, number], state, block, terms) as (step, before):
                part = segment.scale(step)
                gradients.zero(count)
                segment.reverse(adjoint, before, gradients, (factors, power, terms))
                with k.loop(count) as form:
                    to_forms[form] = fma(part, gradients[form], to_forms[form])
            with k.loop(count) as form:
                totals[form] = totals[form] + to_forms[form]
            with k.each(args.control_count) as control:
                to_controls[number, control] = tasks.chained(to_forms, args.fixed_count + control)
            with k.when(args.each_end != 0), k.loop(size) as row:
                adjoint[row] = adjoint[row] + cotangents[number, row]
        with k.each(args.fixed_count) as coefficient:
            to_fixed[coefficient] = tasks.chained(totals, coefficient)
        _copy(tasks, adjoint, args.to_initial[tasks.lanes])


class _Tasks:
    """The tasks of a group. values: tau times their coefficients; forms, scaled: of a segment and of a step, as outputs."""

    def __init__(
        self, k: FunctionCode, args: Arguments, group: Number, values: Buffer, forms: Buffer, scaled: Buffer
    ) -> None:
        self.k, self.args, self.values, self.forms, self.scaled = k, args, values, forms, scaled
        self.lanes, _ = k.lanes_of(group, args.batch)
        self.tau = args.tau.splat()
        fixed = args.fixed[self.lanes]
        with k.each(args.fixed_count) as number:
            values[number] = self.tau * fixed[number]

    def evaluate(self, segment: Number) -> None:
        """Fill the forms of a segment, times tau."""
        k, args = self.k, self.args
        controls = args.controls[self.lanes].part((), args.segments, args.control_count)
        with k.each(args.control_count) as number:
            self.values[args.fixed_count + number] = self.tau * controls[segment, number]
        with k.loop(args.forms) as form:
            self.forms[form] = self._sum(args.term_starts, args.terms, args.term_values, form, self.values)

    def chained(self, gradients: Buffer, coefficient: Number) -> Number:
        """The gradient by a coefficient, from those by the forms."""
        args = self.args
        total = self._sum(args.coefficient_starts, args.chained, args.chained_values, coefficient, gradients)
        return self.tau * total

    def _sum(self, starts: Buffer, numbers: Buffer, values: Buffer, of: Number, vectors: Buffer) -> Number:
        total = self.k.variable(self.k.vector(0.0))
        with _list(self.k, starts, of) as at:
            total.value = fma(values[at].splat(), vectors[numbers[at]], total.value)
        value: Number = total.value
        return value


class _Segment:
    """A segment of a group's tasks: its forms, times tau, and how it is divided."""

    def __init__(self, tasks: _Tasks, number: Number) -> None:
        k, args = tasks.k, tasks.args
        self.k, self.args, self.tasks = k, args, tasks
        tasks.evaluate(number)
        norm = k.variable(k.vector(0.0))
        with k.each(args.normed_rows) as row:
            total = k.variable(k.vector(0.0))
            with _list(k, args.row_starts, row) as at:
                signed = args.by_row[at, 1]
                form = select(signed < args.forms, signed, signed - args.forms)
                total.value = total.value + absolute(tasks.forms[form])
            norm.value = maximum(total.value, norm.value)
        fixed = args.steps.as_float().splat()
        small = norm.value <= args.largest_norm.splat()
        steps = ceil(norm.value * args.per_reach.splat())
        steps = select(small & (steps > 1.0), steps, 1.0)
        self.steps = select(fixed > 0.0, fixed, steps)
        self.part = select(small, 1.0 / self.steps, math.nan)
        length = norm.value * self.part
        degree = k.variable(args.degrees[0].splat())
        with k.each(args.reaching) as reach:
            degree.value = select(
                length > args.reaches[reach].splat(), args.degrees[reach + 1].splat(), degree.value
            )
        self.degree = degree.value
        self.most_steps, self.most_terms = (
            largest_lane(each).as_integer() for each in (self.steps, self.degree)
        )

    def scale(self, step: Number) -> Number:
        """Fill the forms of a step, and then their negatives; their ratio to those of the segment: 0 after a task's last step."""
        k, count, scaled = self.k, self.args.forms, self.tasks.scaled
        part = select(step.as_float().splat() < self.steps, self.part, 0.0)
        with k.loop(count) as form:
            product = part * self.tasks.forms[form]
            scaled[form] = product
            scaled[count + form] = -product
        return part

    def advance(self, state: Buffer, terms: Buffer, alternating: bool = False) -> None:
        """Let the state take a step. What Horner's rule multiplies by G^(n+1) is left in row n + 1 of `terms`.

        alternating: `terms` has two rows only, which are used in turns.
        """
        k = self.k

        def row_of(number: Number) -> Number:
            return number & 1 if alternating else number

        self._horner(state, terms, row_of)
        _copy(self.tasks, terms[k.integer(0)], state)

    def reverse(
        self, adjoint: Buffer, state: Buffer, gradients: Buffer, places: tuple[Buffer, Buffer, Buffer]
    ) -> None:
        """Take the adjoint back over a step that begins in `state`, and add to the gradients by the step's forms."""
        k, args, (factors, power, terms) = self.k, self.args, places
        self._horner(state, terms, lambda number: number)
        _copy(self.tasks, adjoint, power)
        with k.loop(self.most_terms) as term:
            inverse, before = self._inverse(term), terms[term + 1]
            with k.loop(args.size) as row:
                factors[row] = inverse * power[row]
            with k.loop(args.forms) as form:
                total = k.variable(gradients[form])
                with _list(k, args.form_starts, form) as at:
                    weight = args.signs[at].splat() * factors[args.by_form[at, 0]]
                    total.value = fma(weight, before[args.by_form[at, 1]], total.value)
                gradients[form] = total.value

            def pulled(column: Number, image: Number) -> None:
                power[column] = image
                adjoint[column] = adjoint[column] + image

            self._product(args.column_starts, args.by_column, factors, pulled)

    @contextmanager
    def steps_back(
        self, start: Buffer, state: Buffer, block: Buffer, terms: Buffer
    ) -> Iterator[tuple[Number, Buffer]]:
        """Write the body for each step, the last one first; the state before it is in `state`.

        The states within a block of steps are computed again from the one before the segment, `start`.
        """
        k, tasks = self.k, self.tasks

        def step_on(step: Number) -> None:
            self.scale(step)
            self.advance(state, terms)

        with k.loop(ceil_divided(self.most_steps, BLOCK), backwards=True) as number:
            first, count = chunk(number, BLOCK, self.most_steps)
            _copy(tasks, start, state)
            with k.each(first) as step:
                step_on(step)
            with k.each(count - 1) as own:
                _copy(tasks, state, block[own])
                step_on(first + own)
            _copy(tasks, state, block[count - 1])
            with k.loop(count, backwards=True) as own:
                yield first + own, block[own]

    def _horner(self, state: Buffer, terms: Buffer, row_of: Callable[[Number], Number]) -> None:
        k = self.k
        _copy(self.tasks, state, terms[row_of(self.most_terms)])
        with k.loop(self.most_terms, backwards=True) as term:
            inverse, now, following = self._inverse(term), terms[row_of(term + 1)], terms[row_of(term)]

            def added(row: Number, image: Number) -> None:
                following[row] = fma(image, inverse, state[row])

            self._product(self.args.row_starts, self.args.by_row, now, added)

    def _product(
        self, starts: Buffer, pairs: Buffer, vector: Buffer, store: Callable[[Number, Number], None]
    ) -> None:
        """G, or its transpose, times a vector, whose rows are `store` one after the other."""
        k, scaled = self.k, self.tasks.scaled
        with k.loop(self.args.size) as row:
            total = k.variable(k.vector(0.0))
            with _list(k, starts, row) as at:
                total.value = fma(scaled[pairs[at, 1]], vector[pairs[at, 0]], total.value)
            store(row, total.value)

    def _inverse(self, term: Number) -> Number:
        """1 / (term + 1), or 0 in tasks whose degree is not larger than `term`."""
        inverse: Number = self.args.inverses[term].splat()
        value: Number = select((term + 1).as_float().splat() <= self.degree, inverse, 0.0)
        return value


@contextmanager
def _list(k: FunctionCode, starts: Buffer, number: Number) -> Iterator[Number]:
    """Write the body for each place of a list."""
    first = starts[number]
    with k.each(starts[number + 1] - first) as index:
        yield first + index


def _copy(tasks: _Tasks, source: Buffer, target: Buffer) -> None:
    with tasks.k.loop(tasks.args.size) as row:
        target[row] = source[row]
