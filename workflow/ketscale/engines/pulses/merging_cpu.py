"""Merged gates, left (A x B) right, and their gradients by machine code, with a gate a lane: `splitting.merged`.

A and B are the evolutions of a pair's two sites, and left and right the couplings before and after them, which all gates
of a job share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    Complex,
    FunctionCode,
    Lanes,
    Number,
    ceil_divided,
    complex_vectors,
    complexes,
    fma,
    integers,
    select,
)
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.pulses.plain import Meets, Place

ARGUMENTS = {
    "job_count sites pairs": INTEGER,
    "jobs": integers("job_count", "entries"),
    # A and B are of the sites of a pair; gradients are 0 at the start.
    "own to_own": complexes("numbers", "sites", "size"),
    # The couplings of each B of a step, and then the identity.
    "couplings": complexes("kicks", "pairs", "size", "size"),
    # The result, or its cotangent.
    "gates": complexes("numbers", "pairs", "square"),
    # The gradients of a job's `left` and `right`, to be summed over lanes, 0 at the start; nothing if not `wanted`.
    "wanted": INTEGER,
    "to_couplings": complex_vectors("job_count", 2, "size", "size"),
}


class MergingJob(NamedTuple):
    """Gates `first`, `first + stride`, ... of a pair, `count` of them, which share the couplings `left` and `right`."""

    first: Any
    stride: Any
    count: Any
    pair: Any
    site: Any
    other_site: Any
    left: Any
    right: Any


Entries = Callable[[Number, Number], Complex]  # a matrix, by row and column


class MergedSizes(NamedTuple):
    """levels: of a site."""

    levels: int

    @property
    def entries(self) -> int:
        """Entries of a job."""
        return len(MergingJob._fields)

    @property
    def size(self) -> int:
        """Rows of a gate, and entries of a site's matrix."""
        return self.levels**2

    @property
    def square(self) -> int:
        """Entries of a gate."""
        return self.size**2


def write_merged(k: FunctionCode, args: Arguments, plan: MergedSizes) -> None:
    """left (A x B) right of each gate."""
    gates = _Gates(k, args, plan.levels)
    with gates.groups():
        gates.prepare()
        gates.multiply(gates.left, _entries(gates.ended), gates.gate)
        gates.scatter(gates.gate, args.gates[gates.places, gates.job.pair])


def write_gradients(k: FunctionCode, args: Arguments, plan: MergedSizes) -> None:
    """The gradients of all four from those of the gates; that of A and B is added to what is there."""
    gates = _Gates(k, args, plan.levels)
    with gates.groups():
        gates.prepare()
        gates.gather(gates.gate, args.gates[gates.places, gates.job.pair], only_present=True)
        cotangent, inner = _entries(gates.gate), _entries(gates.other)
        gates.multiply(_adjoint(gates.left), cotangent, gates.other)
        with k.when(args.wanted != 0):
            to_left, to_right = (args.to_couplings[gates.number, side] for side in (0, 1))
            gates.multiply(cotangent, _adjoint(_entries(gates.ended)), to_left, add=True)
            gates.multiply(_adjoint(_entries(gates.product)), inner, to_right, add=True)
        gates.multiply(inner, _adjoint(gates.right), gates.gate)
        gates.back_to_sites()


class _Gates:
    """The gates of a job, a vector at a time. Matrices are in the function's memory, a complex vector an entry."""

    def __init__(self, k: FunctionCode, args: Arguments, levels: int) -> None:
        self.k, self.args, self.levels, self.size = k, args, levels, levels**2
        # A and B, the products of interest, and the gradients of these.
        self.a, self.b, self.to_a, self.to_b = (self._local(levels) for _ in range(4))
        self.product, self.ended, self.gate, self.other = (self._local(self.size) for _ in range(4))

    def _local(self, size: int) -> Buffer:
        return self.k.local(size, size, element="complex vector")

    @contextmanager
    def groups(self) -> Iterator[None]:
        """Loop over a job's vectors of gates; the lanes after the last gate repeat it, and have no cotangent."""
        with self.k.tasks(self.args.job_count) as number:
            entries = self.args.jobs[number]
            self.number = number
            self.job = job = MergingJob(*(entries[place] for place in range(len(MergingJob._fields))))
            self.left, self.right = (
                _entries(self.args.couplings[which, job.pair]) for which in (job.left, job.right)
            )
            with self.k.loop(ceil_divided(job.count, self.k.lanes)) as group:
                numbers, self._present = self.k.lanes_of(group, job.count)
                self.places = Lanes(job.first + number * job.stride for number in numbers)
                yield

    def sites(self, array: Buffer) -> list[Buffer]:
        """The parts of A and of B of an array."""
        return [array[self.places, site] for site in (self.job.site, self.job.other_site)]

    def prepare(self) -> None:
        """A, B, their Kronecker product and that times `right`."""
        for place, given in zip((self.a, self.b), self.sites(self.args.own), strict=True):
            self.gather(place, given)
        with self._four() as (i, j, m, n):
            self.product[self._row(i, m), self._row(j, n)] = self.a[i, j] * self.b[m, n]
        self.multiply(_entries(self.product), self.right, self.ended)

    def back_to_sites(self) -> None:
        """Add the gradients of A and B, from that of their Kronecker product in `gate`."""
        for place in (self.to_a, self.to_b):
            place.zero()
        with self._four() as (i, j, m, n):
            found = self.gate[self._row(i, m), self._row(j, n)]
            self.to_a[i, j] = fma(found, self.b[m, n].conjugate(), self.to_a[i, j])
            self.to_b[m, n] = fma(found, self.a[i, j].conjugate(), self.to_b[m, n])
        for place, target in zip((self.to_a, self.to_b), self.sites(self.args.to_own), strict=True):
            self.scatter(place, target, add=True)

    @contextmanager
    def _four(self) -> Iterator[list[Number]]:
        with ExitStack() as stack:
            yield [stack.enter_context(self.k.loop(self.levels)) for _ in range(4)]

    def _row(self, first: Number, second: Number) -> Number:
        return first * self.levels + second

    def multiply(self, left: Entries, right: Entries, place: Buffer, add: bool = False) -> None:
        """The product of two matrices, or with `add` the sum of it and what is there.

        Some entries of a row are summed at once, since each sum waits for its last addition.
        """
        k, wide = self.k, 4 if self.levels == 2 else self.levels
        zero = Complex(k.vector(0.0), k.vector(0.0))
        sums = k.variable([zero] * wide)
        with k.loop(self.size) as i, k.loop(self.size // wide) as tile:
            columns = [tile * wide + number for number in range(wide)]
            sums.value = [place[i, j] if add else zero for j in columns]
            with k.loop(self.size) as m:
                entry = left(i, m)
                sums.value = [
                    fma(entry, right(m, j), total) for j, total in zip(columns, sums.value, strict=True)
                ]
            for j, total in zip(columns, sums.value, strict=True):
                place[i, j] = total

    def gather(self, place: Buffer, gates: Buffer, only_present: bool = False) -> None:
        """The matrices of the gates, a lane each."""
        zero = Complex(self.k.vector(0.0), self.k.vector(0.0))
        with self.k.loop(place.count) as number:
            found = gates[number]
            place.flat[number] = select(self._present, found, zero) if only_present else found

    def scatter(self, place: Buffer, gates: Buffer, add: bool = False) -> None:
        """The inverse of `gather`; with `add` to what is there, which repeated lanes leave as it is."""
        with self.k.loop(place.count) as number:
            if add:
                gates.add(number, place.flat[number])
            else:
                gates[number] = place.flat[number]


def _entries(matrix: Buffer) -> Entries:
    """The entries; those of a matrix that lanes share are in every lane."""

    def entry(i: Number, j: Number) -> Complex:
        return matrix[i, j]

    return entry


def _adjoint(entries: Entries) -> Entries:
    return lambda i, j: entries(j, i).conjugate()


# Gates of a job, which one thread makes.
GATES = 512

LANES = lanes_of(torch.float64)


def merged(
    own: torch.Tensor, pairs: tuple[Place, ...], couplings: torch.Tensor, meets: Meets
) -> torch.Tensor:
    """See `splitting.merged`; on the CPU, in fp64."""
    gates: torch.Tensor = _Merged.apply(own, couplings, pairs, meets)
    return gates


@lru_cache(maxsize=64)
def _jobs(count: int, pairs: tuple[Place, ...], meets: Meets) -> torch.Tensor:
    """The `MergingJob`s of the gates of so many A's, int64; the coupling after the last one is the identity."""
    none = kicks = len(meets)
    starts = [number if begins else none for number, (begins, _) in enumerate(meets)]
    ends = [number if does else none for number, (_, does) in enumerate(meets)]
    alike = [(0, 1, 1, starts[0], none), (count - 1, 1, 1, none, ends[-1])]
    for kick in range(kicks):
        for first in range(kick or kicks, count - 1, kicks * GATES):
            number = 1 + (count - 2 - first) // kicks
            alike.append((first, kicks, min(GATES, number), starts[kick], ends[kick - 1]))
    jobs = [
        MergingJob(first, stride, count, pair, one, other, left, right)
        for first, stride, count, left, right in alike
        for pair, (one, other) in enumerate(pairs)
    ]
    return torch.tensor(jobs, dtype=torch.int64).reshape(-1, len(MergingJob._fields))


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, own: torch.Tensor, couplings: torch.Tensor, pairs: tuple[Place, ...], meets: Meets
    ) -> torch.Tensor:
        gates = own.new_empty(len(own), *couplings.shape[1:])
        identity = torch.eye(couplings.shape[-1], dtype=couplings.dtype).expand_as(couplings[:1])
        tensors = {"own": own.contiguous(), "couplings": torch.cat([couplings.resolve_conj(), identity])}
        ctx.save_for_backward(*tensors.values())
        ctx.jobs = _jobs(len(own), pairs, meets)
        _call("write_merged", ctx.jobs, gates=gates, **tensors)
        return gates

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("a gate of a pulse")
        own, couplings = ctx.saved_tensors
        _, pairs, size, _ = couplings.shape
        gradients = {"to_own": torch.zeros_like(own)}
        wanted, to_couplings = ctx.needs_input_grad[1], None
        if wanted:
            shape = len(ctx.jobs), 2, size, size, 2, LANES
            gradients["to_couplings"] = own.new_zeros(shape, dtype=torch.float64)
        gates = cotangent.resolve_conj().contiguous()
        _call("write_gradients", ctx.jobs, own, couplings, gates, **gradients)
        if wanted:
            pair, *_, left, right = ctx.jobs[:, 3:].unbind(1)
            places = torch.stack([left * pairs + pair, right * pairs + pair], 1)
            to_couplings = torch.zeros_like(couplings)
            found = torch.view_as_complex(gradients["to_couplings"].sum(-1))
            to_couplings.flatten(0, 1).index_add_(0, places.flatten(), found.flatten(0, 1))
            to_couplings = to_couplings[:-1]
        return gradients["to_own"], to_couplings, None, None


def _call(
    name: str,
    jobs: torch.Tensor,
    own: torch.Tensor,
    couplings: torch.Tensor,
    gates: torch.Tensor,
    **gradients: torch.Tensor,
) -> None:
    if not len(jobs):
        return
    _, pairs, size, _ = couplings.shape
    # fmt: off
    _kernel(own.shape[-1]).run(
        name, threads_for(len(jobs), 2 * gates.numel() * size),
        job_count=len(jobs), sites=own.shape[1], pairs=pairs, wanted="to_couplings" in gradients,
        jobs=jobs, own=own, couplings=couplings, gates=gates, **gradients,
    )
    # fmt: on


@lru_cache(maxsize=8)
def _kernel(levels: int) -> Kernel:
    functions = write_merged, write_gradients
    return Kernel(functions, ARGUMENTS, torch.float64, LANES, MergedSizes(levels))
