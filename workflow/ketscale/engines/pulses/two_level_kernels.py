"""The compiled evolutions A of sites of two levels, and their gradients, for `two_level_cpu`, a step a lane.

An A is a product of exponentials exp(-i c) q, with quaternions q (see `quaternions`): its phases add up, and its
quaternions are multiplied. As these are unit quaternions, the gradient goes back through the product by inverses, and
keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ketscale.engines.compiled.functions import sincos
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    Code,
    Complex,
    Lanes,
    Number,
    aligned,
    chunk,
    complexes,
    fma,
    fnma,
    integers,
    reals,
    select,
)
from ketscale.engines.pulses.quaternions import Numbers, dot, exponential_of, inverse, product

# tasks: blocks * kicks * sites; each is one site and one of the A's of a step, in so many groups of steps. kicks: A's of
# a step. groups: vectors of steps, with one step more than there are, whose A_0 ends the last one. starts: which
# exponentials each A has. after: 1 for an exponential of the step before, else 0. undriven: c, x, y, z of what all steps
# have. terms: those of each drive of a site. amounts: how much of each drive, with one step of 0 before the first. own: the
# A's, or the gradients by them, of which there is one more than steps * kicks. Gradients by what steps share are by lane.
ARGUMENTS = {
    "tasks steps sites kicks groups exponentials stride": INTEGER,
    "starts": integers("kicks_and_one"),
    "after": integers("exponentials"),
    "undriven": reals("exponentials", "sites", 4),
    "terms": reals("sites", "drives", 4),
    "amounts to_amounts": reals("exponentials", "sites", "drives", "stride"),
    "own": complexes("kicks_of_steps", "sites", 2, 2),
    "to_undriven": aligned("blocks", "exponentials", "sites", 4),
    "to_terms": aligned("tasks", "drives", 4),
}

# Vectors of steps in a task.
BLOCK = 64


class SiteDrives(NamedTuple):
    """drives: of each site."""

    drives: int


def evolve(k: Code, args: Arguments, plan: SiteDrives) -> None:
    """own <- each A."""
    with _groups(k, args, plan) as steps:
        unit, phase = steps.product()
        # One Newton step towards a unit quaternion.
        scale = fnma(0.5, dot(unit, unit), 1.5)
        w, x, y, z = (each * scale for each in unit)
        own, factor = args.own[steps.places(), steps.site], _phase_factor(phase)
        for place, entry in {(0, 0): (w, -z), (0, 1): (-y, -x), (1, 0): (y, -x), (1, 1): (w, z)}.items():
            own[place] = Complex(*entry) * factor


def gradient(k: Code, args: Arguments, plan: SiteDrives) -> None:
    """to_undriven, to_terms, to_amounts <- the gradients, from those by each A in `own`."""
    with _groups(k, args, plan) as steps:
        unit, phase = steps.product()
        # By exp(-i c) A: that by c is of the product with A itself.
        back_by_phase = _phase_factor(phase).conjugate()
        a, b, c, d = (entry * back_by_phase for entry in steps.cotangents())
        given = [a.real + d.real, -(b.imag + c.imag), c.real - b.real, d.imag - a.imag]
        # Im(conj(G) A) of A = w - i v, entry by entry.
        turned = [a.imag + d.imag, b.real + c.real, c.imag - b.imag, a.real - d.real]
        to_phase = -dot(turned, unit)
        now, back = k.variable(unit), k.variable(given)
        with k.loop(steps.count, backwards=True) as number:
            item = steps.first + number
            hamiltonian, present = steps.hamiltonian(item)
            exponential, sinc, slope = exponential_of(hamiltonian)
            back_by = inverse(exponential)
            before = product(back_by, now.value)
            to_unit = back.value
            found = product(to_unit, inverse(before))
            now.value, back.value = before, product(back_by, to_unit)
            angles, to_v = hamiltonian[1:], found[1:]
            along = fma(slope, dot(angles, to_v), -(sinc * found[0]))
            to_angles = [fma(sinc, t, along * angle) for angle, t in zip(angles, to_v, strict=True)]
            steps.add(item, [select(present, each, 0.0) for each in (to_phase, *to_angles)])


@contextmanager
def _groups(k: Code, args: Arguments, plan: SiteDrives) -> Iterator[_Steps]:
    """Write the body for the vectors of steps of each task that a thread takes."""
    with k.tasks(args.tasks) as task:
        block = task // (args.sites * args.kicks)
        first, count = chunk(block, BLOCK, args.groups)
        with k.loop(count) as group:
            yield _Steps(k, args, plan, task, block, (first + group) * k.lanes)


class _Steps:
    """A vector of steps of a task: one of the A's of one site.

    first, count: its exponentials.
    """

    def __init__(
        self, k: Code, args: Arguments, plan: SiteDrives, task: Number, block: Number, row: Number
    ) -> None:
        self.k, self.args, self.plan, self.task, self.block, self._row = k, args, plan, task, block, row
        self.site, self._kick = task % args.sites, (task // args.sites) % args.kicks
        self.first = args.starts[self._kick]
        self.count = args.starts[self._kick + 1] - self.first
        self._rows = row.as_float().splat() + k.vector([float(lane) for lane in range(k.lanes)])

    def product(self) -> tuple[list[Number], Number]:
        """The product of the exponentials' quaternions, and the sum of their phases."""
        zero = self.k.vector(0.0)
        now, phase = self.k.variable([self.k.vector(1.0), zero, zero, zero]), self.k.variable(zero)
        with self.k.loop(self.count) as number:
            hamiltonian, _ = self.hamiltonian(self.first + number)
            now.value = product(exponential_of(hamiltonian)[0], now.value)
            phase.value += hamiltonian[0]
        return now.value, phase.value

    def hamiltonian(self, item: Number) -> tuple[list[Number], Number]:
        """What an exponential is of, 0 where there is no such step; and where there is."""
        after = self.args.after[item]
        from_, to = (each.as_float().splat() for each in (after, after + self.args.steps))
        present = (self._rows >= from_) & (self._rows < to)
        undriven = self.args.undriven[item, self.site]
        found = [select(present, undriven[part].splat(), 0.0) for part in range(4)]
        for drive in range(self.plan.drives):
            amount = self._amounts(self.args.amounts, item, drive)[0]
            found = [fma(amount, term, sum_) for term, sum_ in zip(self._terms(drive), found, strict=True)]
        return found, present

    def add(self, item: Number, found: Numbers) -> None:
        """Add a Hamiltonian's gradient to those of what it is a sum of."""
        _add(self.args.to_undriven[self.block, item, self.site], found)
        for drive in range(self.plan.drives):
            amount = self._amounts(self.args.amounts, item, drive)[0]
            _add(self.args.to_terms[self.task, drive], [amount * each for each in found])
            self._amounts(self.args.to_amounts, item, drive)[0] = dot(self._terms(drive), found)

    def places(self) -> Lanes:
        """The numbers of the lanes' A's."""
        rows = (self._row + lane for lane in range(self.k.lanes))
        return Lanes(row * self.args.kicks + self._kick for row in rows)

    def cotangents(self) -> list[Complex]:
        """The gradients by the entries of the lanes' A's, 0 for those after the last."""
        last, places = self.args.steps * self.args.kicks, self.places()
        inside = self.k.gathered(places) <= last
        own = self.args.own[Lanes(select(place <= last, place, last) for place in places), self.site]
        zero = Complex(self.k.vector(0.0), self.k.vector(0.0))
        return [select(inside, own[i, j], zero) for i in range(2) for j in range(2)]

    def _terms(self, drive: int) -> list[Number]:
        """c, x, y, z of a drive."""
        terms = self.args.terms[self.site, drive]
        return [terms[part].splat() for part in range(4)]

    def _amounts(self, amounts: Buffer, item: Number, drive: int) -> Buffer:
        """How much of a drive each step has in an exponential, as one vector."""
        step = (self._row + 1) - self.args.after[item]
        return amounts.part((item, self.site, drive, step), 1, element="vector")


def _add(place: Buffer, values: Numbers) -> None:
    for number, value in enumerate(values):
        place[number] = place[number] + value


def _phase_factor(phase: Number) -> Complex:
    """exp(-i phase)."""
    sine, cosine = sincos(phase)
    return Complex(cosine, -sine)
