"""The evolutions A of sites of two levels and their gradients by machine code, with a step a lane: `splitting.evolutions`.

An A is a product of exponentials exp(-i c) q, with quaternions q: its phases add up, and its
quaternions are multiplied. As these are unit quaternions, the gradient goes back through the product by inverses, and
keeps nothing.

Quaternions (w, x, y, z) stand for the matrices w - i (x X + y Y + z Z), with Pauli's matrices. A Hamiltonian c + x X + y Y +
z Z has the exponential exp(-i c) q of the unit quaternion q with w = cos r and the rest (x, y, z) sin(r) / r, where
r = |(x, y, z)|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from ketscale.engines.compiled.functions import polynomial, sincos
from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    Complex,
    FunctionCode,
    Lanes,
    Number,
    aligned,
    chunk,
    complexes,
    fma,
    fnma,
    integers,
    minimum,
    reals,
    select,
    sqrt,
)
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.pulses.lattice import Lattice
from ketscale.engines.pulses.schemes import Scheme

ARGUMENTS = {
    # A task is one site and one of the s A's of a step, in so many vectors of steps. There is one step more than the
    # given ones: its A_0 ends the last one.
    "tasks steps sites kicks groups": INTEGER,
    # Which exponentials each A has, and for each of these 1 if it is of the step before, else 0.
    "starts after": integers("numbers"),
    # c, x, y, z of what all steps have, and of each drive of a site.
    "undriven": reals("exponentials", "sites", 4),
    "terms": reals("sites", "drives", 4),
    # How much of each drive, with one step of 0 before the first; and its gradient.
    "amounts to_amounts": reals("exponentials", "sites", "drives", "stride"),
    "stride": INTEGER,
    # (groups * lanes * s, sites, 2, 2): the result; or its cotangent (steps * s + 1, sites, 2, 2).
    "own": complexes("places", "sites", 4),
    # Gradients, 0 at the start.
    "to_undriven": aligned("blocks", "exponentials", "sites", 4),
    "exponentials": INTEGER,
    "to_terms": aligned("tasks", "drives", 4),
}

# Vectors of steps in a task.
BLOCK = 64


class SiteDrives(NamedTuple):
    """drives: of each site."""

    drives: int


def write_evolutions(k: FunctionCode, args: Arguments, plan: SiteDrives) -> None:
    """Each A."""
    evolution = _SiteEvolution(k, args, plan)
    with evolution.vectors():
        evolution.multiply()
        now = evolution.now.value
        # One Newton step towards a unit quaternion.
        scale = fnma(k.vector(0.5), dot(now, now), 1.5)
        w, x, y, z = (each * scale for each in now)
        phase = evolution.phase_factor()
        own = args.own[Lanes(evolution.places()), evolution.site]
        for number, entry in enumerate((Complex(w, -z), Complex(-y, -x), Complex(y, -x), Complex(w, z))):
            own[number] = entry * phase


def write_gradients(k: FunctionCode, args: Arguments, plan: SiteDrives) -> None:
    """The gradients by all three, from that by each A."""
    evolution = _SiteEvolution(k, args, plan)
    back = k.variable([k.vector(0.0)] * 4)
    with evolution.vectors():
        evolution.multiply()
        phase = evolution.phase_factor().conjugate()
        # Lanes after the last A have none.
        last = args.steps * args.kicks
        own = args.own[Lanes(minimum(place, last) for place in evolution.places()), evolution.site]
        present = k.gathered([place <= last for place in evolution.places()])
        # By exp(-i c) A: that by c is of the product with A itself.
        zero = Complex(k.vector(0.0), k.vector(0.0))
        a, b, c, d = (select(present, own[number], zero) * phase for number in range(4))
        back.value = [a.real + d.real, -(b.imag + c.imag), c.real - b.real, d.imag - a.imag]
        # Im(conj(G) A) of A = w - i v, entry by entry.
        turned = (a.imag + d.imag, b.real + c.real, c.imag - b.imag, a.real - d.real)
        to_phase = -dot(turned, evolution.now.value)
        first, count = evolution.exponentials()
        with k.loop(count, backwards=True) as number:
            item = first + number
            hamiltonian, there = evolution.hamiltonian(item)
            exponential, sinc, slope = exponential_of(hamiltonian)
            back_by = inverse(exponential)
            before = product(back_by, evolution.now.value)
            found = product(back.value, inverse(before))
            evolution.now.value, back.value = before, product(back_by, back.value)
            angles, to_v = hamiltonian[1:], found[1:]
            along = fma(slope, dot(angles, to_v), -(sinc * found[0]))
            to_angles = [fma(sinc, t, along * angle) for angle, t in zip(angles, to_v, strict=True)]
            evolution.add_gradients([select(there, each, 0.0) for each in (to_phase, *to_angles)], item)


# Below an angle of 1, the power series of sin(r) / r and of its derivative in r**2, times 2; highest power first.
SINC = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1)]
SLOPE = [(-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(9, 0, -1)]

Vectors = Sequence[Number]  # the parts of a Hamiltonian or a quaternion


def exponential_of(hamiltonian: Vectors) -> tuple[list[Number], Number, Number]:
    """The quaternion of a Hamiltonian (c, x, y, z), sin(r) / r, and 2 times its derivative by r**2."""
    angles = hamiltonian[1:]
    square = dot(angles, angles)
    small = square < 1.0
    divisor = select(small, 1.0, square)
    sine, cosine = sincos(sqrt(square))
    sinc = select(small, polynomial(square, SINC), sine / sqrt(divisor))
    slope = select(small, polynomial(square, SLOPE), (cosine - sinc) / divisor)
    return [cosine, *(sinc * each for each in angles)], sinc, slope


def product(left: Vectors, right: Vectors) -> list[Number]:
    """The product of two quaternions."""
    w, x, y, z = left
    p, q, r, s = right
    return [
        fnma(z, s, fnma(y, r, fnma(x, q, w * p))),
        fnma(z, r, fma(y, s, fma(x, p, w * q))),
        fma(z, q, fma(y, p, fnma(x, s, w * r))),
        fma(z, p, fnma(y, q, fma(x, r, w * s))),
    ]


def inverse(unit: Vectors) -> list[Number]:
    """The inverse of a unit quaternion."""
    return [unit[0], *(-each for each in unit[1:])]


def dot(left: Vectors, right: Vectors) -> Number:
    """The sum of products."""
    total: Any = None
    for a, b in zip(left, right, strict=True):
        total = fma(a, b, total)
    made: Number = total
    return made


class _SiteEvolution:
    """The A's of a task, a vector at a time: `now` is their product of quaternions."""

    def __init__(self, k: FunctionCode, args: Arguments, plan: SiteDrives) -> None:
        self.k, self.args, self.drives = k, args, plan.drives
        self.now = k.variable([k.vector(0.0)] * 4)
        self._phase = k.variable(k.vector(0.0))

    @contextmanager
    def vectors(self) -> Iterator[None]:
        """Loop over the vectors of steps of each task that a thread takes."""
        k, args = self.k, self.args
        with k.tasks(args.tasks) as task:
            self._task, self.site = task, task % args.sites
            self._kick = task // args.sites % args.kicks
            self._block = task // (args.sites * args.kicks)
            first, count = chunk(self._block, BLOCK, args.groups)
            with k.loop(count) as number:
                self._first_step = (first + number) * k.lanes
                self._steps = self._first_step.as_float().splat() + k.vector(range(k.lanes))
                yield

    def multiply(self) -> None:
        """The product of an A's exponentials, and the sum of its phases."""
        k, zero = self.k, self.k.vector(0.0)
        self.now.value, self._phase.value = [k.vector(1.0), zero, zero, zero], zero
        first, count = self.exponentials()
        with k.loop(count) as number:
            hamiltonian, _ = self.hamiltonian(first + number)
            exponential, *_ = exponential_of(hamiltonian)
            self.now.value = product(exponential, self.now.value)
            self._phase.value += hamiltonian[0]

    def exponentials(self) -> tuple[Number, Number]:
        """The first exponential of this A, and their number."""
        first = self.args.starts[self._kick]
        return first, self.args.starts[self._kick + 1] - first

    def hamiltonian(self, item: Number) -> tuple[list[Number], Number]:
        """The Hamiltonian of an exponential, 0 where there is no such step; and where there is."""
        args = self.args
        first = args.after[item]
        there = (self._steps >= first.as_float()) & (self._steps < (first + args.steps).as_float())
        found = [select(there, args.undriven[item, self.site, part], 0.0) for part in range(4)]
        for drive in range(self.drives):
            amount = self._amounts("amounts", item, drive)[0]
            terms = args.terms[self.site, drive]
            found = [fma(amount, terms[part], found[part]) for part in range(4)]
        return found, there

    def _amounts(self, name: str, item: Number, drive: int) -> Buffer:
        """How much of a drive each step of the vector has, or the gradient by that."""
        step = self._first_step + 1 - self.args.after[item]
        array: Buffer = getattr(self.args, name)
        return array.part((item, self.site, drive, step), 1, element="vector")

    def add_gradients(self, found: Vectors, item: Number) -> None:
        """Add a Hamiltonian's gradient to those of what it is a sum of."""
        args = self.args
        to_undriven = args.to_undriven[self._block, item, self.site]
        for part, each in enumerate(found):
            to_undriven.add(part, each)
        for drive in range(self.drives):
            amount, terms = self._amounts("amounts", item, drive)[0], args.terms[self.site, drive]
            to_terms = args.to_terms[self._task, drive]
            for part, each in enumerate(found):
                to_terms.add(part, amount * each)
            total = dot([terms[part] for part in range(4)], found)
            self._amounts("to_amounts", item, drive)[0] = total

    def phase_factor(self) -> Complex:
        """exp(-i c) of the sum of phases."""
        sine, cosine = sincos(self._phase.value)
        return Complex(cosine, -sine)

    def places(self) -> list[Number]:
        """The numbers of the lanes' A's."""
        first = self._first_step
        return [(first + lane) * self.args.kicks + self._kick for lane in range(self.k.lanes)]


LANES = lanes_of(torch.float64)

# About so many multiply-adds an exponential takes.
WORK = 60


def evolutions(
    scheme: Scheme, lattice: Lattice, amplitudes: torch.Tensor, step: torch.Tensor
) -> torch.Tensor:
    """See `splitting.evolutions`; on the CPU, for two levels."""
    items = _items(scheme)
    steps = len(amplitudes)
    rows = -(-(steps + 1) // LANES) * LANES
    # With steps of amplitude 0 around: see `ARGUMENTS`.
    samples = pad(amplitudes.permute(1, 2, 0), (1, rows - steps))
    drives = step * _paulis(lattice.drives)
    places = _places(lattice.drive_sites, lattice.sites)
    if places is not None:
        samples, drives = (_placed(tensor, dim, places) for tensor, dim in ((samples, 1), (drives, 0)))
    amounts = items.weights @ samples.flatten(1)
    undriven = (step * items.durations)[:, None, None] * _paulis(torch.diag_embed(lattice.energies))
    made: torch.Tensor = _Evolutions.apply(
        undriven,
        drives.unflatten(0, (lattice.sites, -1)),
        amounts.view(len(items.after), lattice.sites, -1, rows + 1),
        items,
        steps,
    )
    return made


class _Items(NamedTuple):
    """The exponentials of each A in the order of their action.

    starts: where each A's begin, and their number. after: 1 for those of the step before, else 0. weights: of samples.
    durations: of the undriven part.
    """

    starts: torch.Tensor
    after: torch.Tensor
    weights: torch.Tensor
    durations: torch.Tensor


@lru_cache(maxsize=64)
def _items(scheme: Scheme) -> _Items:
    first, *within, last = scheme.local
    lists = [(*last, *first), *within]
    parts = torch.tensor([part for each in lists for part in each])
    weights = torch.tensor(scheme.parts, dtype=torch.float64)
    after = torch.zeros(len(parts), dtype=torch.int64)
    after[: len(last)] = 1
    starts = torch.tensor([sum(map(len, lists[:k])) for k in range(len(lists) + 1)])
    durations = torch.tensor(scheme.durations, dtype=torch.float64)
    return _Items(starts, after, weights[parts], durations[parts])


@lru_cache(maxsize=64)
def _places(drive_sites: tuple[int, ...], sites: int) -> torch.Tensor | None:
    """The drives by site, as many for each, with the number after the last for none; None: they are so already."""
    by_site = [[k for k, at in enumerate(drive_sites) if at == site] for site in range(sites)]
    most = max(1, *map(len, by_site))
    padded = [[*each, *[len(drive_sites)] * (most - len(each))] for each in by_site]
    flat = [drive for each in padded for drive in each]
    return None if flat == list(range(len(drive_sites))) else torch.tensor(flat)


def _placed(tensor: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor:
    shape = list(tensor.shape)
    shape[dim] = 1
    return torch.cat([tensor, tensor.new_zeros(shape)], dim).index_select(dim, places)


def _paulis(hermitian: torch.Tensor) -> torch.Tensor:
    """The parts 1, X, Y, Z of Hermitian matrices (..., 2, 2), real (..., 4)."""
    if not hermitian.is_complex():
        hermitian = hermitian.to(torch.complex128)
    return torch.view_as_real(hermitian.resolve_conj()).flatten(-3) @ _projections()


@lru_cache(maxsize=1)
def _projections() -> torch.Tensor:
    paulis = torch.tensor(
        [[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]], dtype=torch.complex128
    )
    return torch.view_as_real(paulis).flatten(1).T / 2


class _Evolutions(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        undriven: torch.Tensor,
        terms: torch.Tensor,
        amounts: torch.Tensor,
        items: _Items,
        steps: int,
    ) -> torch.Tensor:
        tensors = {"undriven": undriven.contiguous(), "terms": terms.contiguous(), "amounts": amounts}
        ctx.save_for_backward(*tensors.values())
        ctx.items, ctx.steps = items, steps
        kicks, sites = len(items.starts) - 1, terms.shape[0]
        own = amounts.new_empty((amounts.shape[-1] - 1) * kicks, sites, 2, 2, dtype=torch.complex128)
        _call("write_evolutions", items, steps, {**tensors, "own": own})
        return own[: steps * kicks + 1]

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("an evolution of a site")
        undriven, terms, amounts = ctx.saved_tensors
        kicks, (sites, drives, _) = len(ctx.items.starts) - 1, terms.shape
        blocks = _blocks(amounts)
        to_amounts = torch.zeros_like(amounts)
        to_undriven = amounts.new_zeros(blocks, *undriven.shape, LANES)
        to_terms = amounts.new_zeros(blocks, kicks, sites, drives, 4, LANES)
        tensors = {"undriven": undriven, "terms": terms, "amounts": amounts}
        tensors |= {"to_undriven": to_undriven, "to_terms": to_terms, "to_amounts": to_amounts}
        tensors["own"] = cotangent.resolve_conj().contiguous()
        _call("write_gradients", ctx.items, ctx.steps, tensors)
        return to_undriven.sum((0, -1)), to_terms.sum((0, 1, -1)), to_amounts, None, None


def _blocks(amounts: torch.Tensor) -> int:
    return -(-(amounts.shape[-1] - 1) // (LANES * BLOCK))


def _call(name: str, items: _Items, steps: int, tensors: dict[str, torch.Tensor]) -> None:
    amounts = tensors["amounts"]
    sites, drives, stride = amounts.shape[1:]
    kicks = len(items.starts) - 1
    tasks = _blocks(amounts) * kicks * sites
    # fmt: off
    _kernel(drives).run(
        name, threads_for(tasks, WORK * amounts.numel() // drives),
        tasks=tasks, steps=steps, sites=sites, kicks=kicks, groups=(stride - 1) // LANES, stride=stride,
        exponentials=len(items.after), starts=items.starts, after=items.after, **tensors,
    )
    # fmt: on


@lru_cache(maxsize=8)
def _kernel(drives: int) -> Kernel:
    functions = write_evolutions, write_gradients
    return Kernel(functions, ARGUMENTS, torch.float64, LANES, SiteDrives(drives))
