"""Writes the machine code for the evolutions A of sites of two levels, and their gradients, one step a lane.

An A is a product of exponentials exp(-i c) q, with quaternions q (see `quaternions`): its phases add up, and its
quaternions are multiplied. As these are unit quaternions, the gradient goes back through the product by inverses, and
keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from ketscale.engines.compiled.vector import I32, I64, Value, Writer
from ketscale.engines.pulses.quaternions import Vectors, dot, exponential_of, inverse, product, times

ARGUMENTS = (
    "next_task",  # counter, 0 at the start
    "tasks",  # blocks * s * n; a task is one site and one of the s A's of a step, in so many groups of steps
    "steps", "sites", "kicks",
    "groups",  # vectors of steps, with one step more than there are: A_0 of it ends the last one
    "starts",  # (s + 1): which exponentials each A has
    "after",  # (exponentials): 1 if it is of the step before, else 0
    "undriven",  # (exponentials, n, 4): c, x, y, z of what all steps have
    "terms",  # (n, drives, 4): those of each drive of a site
    "amounts", "stride",  # (exponentials, n, drives, stride): of each drive, with one step of 0 before the first
    "own",  # complex (groups * lanes * s, n, 2, 2): the result; or its cotangent (steps * s + 1, n, 2, 2)
    "to_undriven",  # gradients, 0 at the start: (blocks, exponentials, n, 4, lanes)
    "to_terms",  # (tasks, drives, 4, lanes)
    "to_amounts",  # as `amounts`
)  # fmt: skip

# Vectors of steps in a task.
BLOCK = 64


def module(drives: int, lanes: int) -> ir.Module:
    """The functions `evolve` and `gradient` for so many drives of each site, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_two_levels")
    _Function(written, "evolve", drives, lanes).evolve()
    _Function(written, "gradient", drives, lanes).gradient()
    return written


class _Function:
    """Writes one of the functions."""

    def __init__(self, module: ir.Module, name: str, drives: int, lanes: int) -> None:
        self.w, self.drives = Writer(module, name, lanes, double=True), drives
        self._now, self._back = self._variable(4), self._variable(4)
        self._phase = self._variable(1)

    def _variable(self, count: int) -> list[Value]:
        """Vectors that loops change."""
        return [self.w.b.alloca(self.w.vector) for _ in range(count)]

    def _get(self, variable: list[Value]) -> list[Value]:
        return [self.w.b.load(each, typ=self.w.vector) for each in variable]

    def _set(self, variable: list[Value], values: Vectors) -> None:
        for each, value in zip(variable, values, strict=True):
            self.w.b.store(value, each)

    def _int(self, name: str) -> Value:
        return self.w.argument(ARGUMENTS.index(name))

    def _array(self, name: str) -> Value:
        return self.w.argument(ARGUMENTS.index(name), pointer=True)

    def evolve(self) -> None:
        """Each A."""
        with self._groups():
            self._multiply()
            now = self._get(self._now)
            # One Newton step towards a unit quaternion.
            norm = dot(self.w, now, now)
            scale = self.w.fma(self.w.constant(0.5), norm, self.w.constant(1.5), negate=True)
            w, x, y, z = (self.w.b.fmul(each, scale) for each in now)
            minus = self.w.b.fneg
            phase = self._phase_factor()
            rows = ((w, minus(z)), (minus(y), minus(x)), (y, minus(x)), (w, z))
            self._scatter([part for entry in rows for part in times(self.w, entry, phase)])

    def gradient(self) -> None:
        """By all three, from the gradient by each A."""
        w, b = self.w, self.w.b
        with self._groups():
            self._multiply()
            p, q = self._phase_factor()
            # By exp(-i c) A: that by c is of the product with A itself.
            numbers = self._gather()
            turned = [
                times(self.w, entry, (p, b.fneg(q)))
                for entry in zip(numbers[::2], numbers[1::2], strict=True)
            ]
            (r0, i0), (r1, i1), (r2, i2), (r3, i3) = turned
            given = (b.fadd(r0, r3), b.fneg(b.fadd(i1, i2)), b.fsub(r2, r1), b.fsub(i3, i0))
            now = self._get(self._now)
            x, y, z = now[1:]
            # Im(conj(G) A) of A = w - i v, entry by entry.
            to_phase = b.fneg(
                dot(
                    self.w,
                    (b.fadd(i0, i3), b.fadd(r1, r2), b.fsub(i2, i1), b.fsub(r0, r3)),
                    (now[0], x, y, z),
                )
            )
            self._set(self._back, given)
            first, count = self._exponentials()
            with w.loop(count) as done:
                item = b.sub(b.sub(b.add(first, count), w.integer(1)), done)
                hamiltonian, present = self._hamiltonian(item)
                exponential, sinc, slope = exponential_of(self.w, hamiltonian)
                back_by = inverse(self.w, exponential)
                before = product(self.w, back_by, self._get(self._now))
                back = self._get(self._back)
                found = product(self.w, back, inverse(self.w, before))
                self._set(self._now, before)
                self._set(self._back, product(self.w, back_by, back))
                angles, to_v = hamiltonian[1:], found[1:]
                along = w.fma(slope, dot(self.w, angles, to_v), b.fneg(b.fmul(sinc, found[0])))
                to_angles = [w.fma(sinc, t, b.fmul(along, a)) for a, t in zip(angles, to_v, strict=True)]
                zero = w.constant(0.0)
                self._store([b.select(present, each, zero) for each in (to_phase, *to_angles)], item)

    def _store(self, found: Vectors, item: Value) -> None:
        """Add a Hamiltonian's gradient to those of what it is a sum of."""
        w, b = self.w, self.w.b
        place = b.add(b.mul(b.add(b.mul(self._block, self._count), item), self._int("sites")), self._site)
        self._add(w.at(self._array("to_undriven"), b.mul(place, w.integer(4))), found)
        for drive in range(self.drives):
            amount, terms, at = self._drive(item, drive)
            place = b.add(b.mul(self._task, w.integer(self.drives)), w.integer(drive))
            address = w.at(self._array("to_terms"), b.mul(place, w.integer(4)))
            self._add(address, [b.fmul(amount, each) for each in found])
            w.store(dot(self.w, terms, found), w.element(self._array("to_amounts"), at), align=8)

    def _add(self, address: Value, values: Vectors) -> None:
        for number, value in enumerate(values):
            at = self.w.at(address, number)
            self.w.store(self.w.b.fadd(self.w.load(at), value), at)

    # --- exponentials ---

    def _multiply(self) -> None:
        """The product of an A's exponentials, and the sum of its phases."""
        w = self.w
        zero = w.constant(0.0)
        self._set(self._now, [w.constant(1.0), zero, zero, zero])
        self._set(self._phase, [zero])
        first, count = self._exponentials()
        with w.loop(count) as number:
            hamiltonian, _ = self._hamiltonian(w.b.add(first, number))
            exponential, *_ = exponential_of(self.w, hamiltonian)
            self._set(self._now, product(self.w, exponential, self._get(self._now)))
            self._set(self._phase, [w.b.fadd(self._get(self._phase)[0], hamiltonian[0])])

    def _exponentials(self) -> tuple[Value, Value]:
        """The first exponential of this A, and their number."""
        w = self.w
        starts = [
            w.b.load(w.element(self._array("starts"), w.b.add(self._kick, w.integer(k)), I64), typ=I64)
            for k in (0, 1)
        ]
        return starts[0], w.b.sub(starts[1], starts[0])

    def _hamiltonian(self, item: Value) -> tuple[list[Value], Value]:
        """What an exponential is of, 0 where there is no such step; and where there is."""
        w, b = self.w, self.w.b
        first = self._after(item)
        from_ = w.splat(b.sitofp(first, w.real))
        to = w.splat(b.sitofp(b.add(first, self._int("steps")), w.real))
        present = b.and_(b.fcmp_ordered(">=", self._rows, from_), b.fcmp_ordered("<", self._rows, to))
        place = b.add(b.mul(item, self._int("sites")), self._site)
        undriven = w.element(self._array("undriven"), b.mul(place, w.integer(4)))
        found = [b.select(present, w.load_splat(w.element(undriven, k)), w.constant(0.0)) for k in range(4)]
        for drive in range(self.drives):
            amount, terms, _ = self._drive(item, drive)
            found = [w.fma(amount, term, sum_) for term, sum_ in zip(terms, found, strict=True)]
        return found, present

    def _after(self, item: Value) -> Value:
        return self.w.b.load(self.w.element(self._array("after"), item, I64), typ=I64)

    def _drive(self, item: Value, drive: int) -> tuple[Value, list[Value], Value]:
        """How much of a drive each step has, its c, x, y, z, and where the amount is."""
        w, b = self.w, self.w.b
        place = b.add(b.mul(item, self._int("sites")), self._site)
        place = b.add(b.mul(place, w.integer(self.drives)), w.integer(drive))
        step = b.sub(b.add(self._first_row, w.integer(1)), self._after(item))
        at = b.add(b.mul(place, self._int("stride")), step)
        place = b.add(b.mul(self._site, w.integer(self.drives)), w.integer(drive))
        term = w.element(self._array("terms"), b.mul(place, w.integer(4)))
        terms = [w.load_splat(w.element(term, k)) for k in range(4)]
        return w.load(w.element(self._array("amounts"), at), align=8), terms, at

    def _phase_factor(self) -> tuple[Value, Value]:
        """exp(-i c) of the sum of phases."""
        sine, cosine = self.w.sincos(self._get(self._phase)[0])
        return cosine, self.w.b.fneg(sine)

    # --- memory ---

    @contextmanager
    def _groups(self) -> Iterator[None]:
        """The vectors of steps of each task that a thread takes."""
        w, b = self.w, self.w.b
        sites, kicks = self._int("sites"), self._int("kicks")
        self._count = b.load(w.element(self._array("starts"), kicks, I64), typ=I64)
        with w.taken(w.argument_address(ARGUMENTS.index("next_task")), self._int("tasks")) as task:
            self._task, self._site = task, b.urem(task, sites)
            self._kick = b.urem(b.udiv(task, sites), kicks)
            self._block = b.udiv(task, b.mul(sites, kicks))
            first = b.mul(self._block, w.integer(BLOCK))
            left = b.sub(self._int("groups"), first)
            number = b.select(b.icmp_unsigned("<", left, w.integer(BLOCK)), left, w.integer(BLOCK))
            with w.loop(number) as group:
                self._first_row = b.mul(b.add(first, group), w.integer(w.lanes))
                start = w.splat(b.sitofp(self._first_row, w.real))
                self._rows = b.fadd(start, w.constant([float(lane) for lane in range(w.lanes)]))
                yield

    def _places(self) -> list[Value]:
        """The numbers of the lanes' A's."""
        b, w = self.w.b, self.w
        rows = [b.add(self._first_row, w.integer(lane)) for lane in range(w.lanes)]
        return [b.add(b.mul(row, self._int("kicks")), self._kick) for row in rows]

    def _address(self, place: Value) -> Value:
        b, w = self.w.b, self.w
        number = b.add(b.mul(place, self._int("sites")), self._site)
        return w.element(self._array("own"), b.mul(number, w.integer(8)))

    def _scatter(self, numbers: Vectors) -> None:
        for lane, place in enumerate(self._places()):
            address = self._address(place)
            for number, vector in enumerate(numbers):
                value = self.w.b.extract_element(vector, ir.Constant(I32, lane))
                self.w.b.store(value, self.w.element(address, number), align=8)

    def _gather(self) -> list[Value]:
        """The cotangents of the lanes' A's, 0 for those after the last."""
        w, b = self.w, self.w.b
        last = b.mul(self._int("steps"), self._int("kicks"))
        found = [ir.Constant(w.vector, ir.Undefined)] * 8
        for lane, place in enumerate(self._places()):
            inside = b.icmp_unsigned("<=", place, last)
            address = self._address(b.select(inside, place, last))
            for number in range(8):
                value = b.select(inside, w.load_real(w.element(address, number)), ir.Constant(w.real, 0.0))
                found[number] = b.insert_element(found[number], value, ir.Constant(I32, lane))
        return found
