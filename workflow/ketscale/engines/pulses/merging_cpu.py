"""Merged gates by machine code, with a gate a lane: the function `splitting.merged`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.pulses import merging_kernels
from ketscale.engines.pulses.cpu import threads_for
from ketscale.engines.pulses.merging_kernels import JOB, GateLevels
from ketscale.engines.pulses.placement import Place
from ketscale.engines.pulses.splitting import Meets

# Gates of a job, which one thread makes.
GATES = 512

LANES = lanes_of(torch.float64)


def merged(
    own: torch.Tensor, pairs: tuple[Place, ...], couplings: torch.Tensor, meets: Meets
) -> torch.Tensor:
    """See `splitting.merged`; on the CPU, in fp64."""
    gates: torch.Tensor = _Merged.apply(own, couplings, pairs, meets)
    return gates


class _Job(NamedTuple):
    """Gates `first`, `first + stride`, ... of a pair, which share couplings: those after and before; None: nothing."""

    pair: int
    first: int
    stride: int
    number: int
    left: int | None
    right: int | None


@lru_cache(maxsize=64)
def _jobs(count: int, meets: Meets, pairs: int) -> tuple[_Job, ...]:
    """All gates of so many A's."""
    kicks = len(meets)
    starts = [number if begins else None for number, (begins, _) in enumerate(meets)]
    ends = [number if does else None for number, (_, does) in enumerate(meets)]
    alike = [(0, 1, 1, starts[0], None), (count - 1, 1, 1, None, ends[-1])]
    for kick in range(kicks):
        for first in range(kick or kicks, count - 1, kicks * GATES):
            number = 1 + (count - 2 - first) // kicks
            alike.append((first, kicks, min(GATES, number), starts[kick], ends[kick - 1]))
    return tuple(_Job(pair, *each) for each in alike for pair in range(pairs))


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, own: torch.Tensor, couplings: torch.Tensor, pairs: tuple[Place, ...], meets: Meets
    ) -> torch.Tensor:
        own, couplings = own.contiguous(), couplings.resolve_conj().contiguous()
        gates = own.new_empty(len(own), *couplings.shape[1:])
        ctx.save_for_backward(own, couplings)
        ctx.pairs, ctx.jobs = pairs, _jobs(len(own), meets, len(pairs))
        _call("merge", ctx.jobs, pairs, own, couplings, gates)
        return gates

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("a gate of a pulse")
        own, couplings = ctx.saved_tensors
        cotangent = cotangent.resolve_conj().contiguous()
        to_own, to_couplings, sums = torch.zeros_like(own), None, None
        size = couplings.shape[-1]
        if ctx.needs_input_grad[1]:
            sums = own.new_zeros(len(ctx.jobs), 2, size, size, 2, LANES, dtype=torch.float64)
        _call("gradient", ctx.jobs, ctx.pairs, own, couplings, cotangent, to_own, sums)
        if sums is not None:
            to_couplings = torch.zeros_like(couplings)
            sides, pairs = _shared(ctx.jobs, couplings.shape[1])
            found = torch.view_as_complex(sums.sum(-1)).flatten(0, 1)
            to_couplings.flatten(0, 1).index_add_(0, pairs, found[sides])
        return to_own, to_couplings, None, None


def _call(
    name: str,
    jobs: tuple[_Job, ...],
    pairs: tuple[Place, ...],
    own: torch.Tensor,
    couplings: torch.Tensor,
    gates: torch.Tensor,
    to_own: torch.Tensor | None = None,
    sums: torch.Tensor | None = None,
) -> None:
    if not jobs:
        return
    levels, size = own.shape[-1], couplings.shape[-1]
    one, square = 16 * levels**2, 16 * size**2
    shape = _Sizes(own[0].numel() // levels**2, gates.shape[1], one, square)
    table, nothing = _table(jobs, pairs, shape)
    starts = {
        "own": own,
        "left": couplings,
        "right": couplings,
        "gates": gates,
        "to_own": to_own,
        "to_left": sums,
        "to_right": sums,
    }
    bases = torch.tensor([0 if (at := starts.get(key)) is None else at.data_ptr() for key in JOB])
    table = torch.where(nothing, _identity(size).data_ptr(), table + bases)
    if sums is None:
        table[:, [JOB.index("to_left"), JOB.index("to_right")]] = 0
    threads = threads_for(2 * gates.numel() * size, len(jobs))
    _kernel(levels)(name, threads, jobs=len(jobs), table=table)


class _Sizes(NamedTuple):
    """Of one A: sites and pairs, and the bytes of a site's matrix and of a pair's."""

    sites: int
    pairs: int
    site_bytes: int
    pair_bytes: int


@lru_cache(maxsize=64)
def _table(
    jobs: tuple[_Job, ...], pairs: tuple[Place, ...], shape: _Sizes
) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries of each job (jobs, entries), of addresses what is added to a tensor's; and which are of no coupling."""
    one, square = shape.site_bytes, shape.pair_bytes
    rows, nothing = [], []
    for number, job in enumerate(jobs):
        first, second = pairs[job.pair]
        own = (job.first * shape.sites + first) * one
        sides = {"left": job.left, "right": job.right}
        values = {
            "count": job.number,
            "own": own,
            "own_stride": job.stride * shape.sites * one // 16,
            "second": (second - first) * one // 16,
            "gates": (job.first * shape.pairs + job.pair) * square,
            "gates_stride": job.stride * shape.pairs * square // 16,
            "to_own": own,
        }
        for side, (key, which) in enumerate(sides.items()):
            values[key] = ((which or 0) * shape.pairs + job.pair) * square
            values[f"to_{key}"] = (2 * number + side) * LANES * square
        rows.append([values[entry] for entry in JOB])
        nothing.append([entry in sides and sides[entry] is None for entry in JOB])
    return torch.tensor(rows), torch.tensor(nothing)


@lru_cache(maxsize=64)
def _shared(jobs: tuple[_Job, ...], pairs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sides of jobs, numbered job by job, that have a coupling, and the numbers of these couplings."""
    sides = [which for job in jobs for which in (job.left, job.right)]
    numbers = [number for number, which in enumerate(sides) if which is not None]
    couplings = [sides[number] * pairs + jobs[number // 2].pair for number in numbers]  # type: ignore[operator]
    return tuple(torch.tensor(each, dtype=torch.int64) for each in (numbers, couplings))  # type: ignore[return-value]


@lru_cache(maxsize=8)
def _identity(size: int) -> torch.Tensor:
    return torch.eye(size, dtype=torch.complex128)


@lru_cache(maxsize=8)
def _kernel(levels: int) -> Kernel:
    functions = merging_kernels.merge, merging_kernels.gradient
    return Kernel(functions, merging_kernels.ARGUMENTS, torch.float64, LANES, GateLevels(levels))
