"""Merged gates by machine code, with a gate a lane: the function `splitting.merged`."""

from __future__ import annotations

from array import array
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.library import Library, Recipe, vector_bytes
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.pulses import merging_kernels
from ketscale.engines.pulses.cpu import threads_for
from ketscale.engines.pulses.merging_kernels import JOB
from ketscale.engines.pulses.placement import Place

SOURCES = (Path(merging_kernels.__file__),)

# Gates of a job, which one thread makes.
GATES = 512

LANES = vector_bytes() // 8


def merged(
    own: torch.Tensor, pairs: tuple[Place, ...], couplings: torch.Tensor, symmetric: bool
) -> torch.Tensor:
    """See `splitting.merged`; on the CPU, in fp64."""
    gates: torch.Tensor = _Merged.apply(own, couplings, pairs, symmetric)
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
def _jobs(count: int, kicks: int, symmetric: bool, pairs: int) -> list[_Job]:
    """All gates of so many A's."""
    alike = [(0, 1, 1, 0, None), (count - 1, 1, 1, None, kicks - 1 if symmetric else None)]
    for kick in range(kicks):
        right = (kick - 1) % kicks if symmetric else None
        for first in range(kick or kicks, count - 1, kicks * GATES):
            number = 1 + (count - 2 - first) // kicks
            alike.append((first, kicks, min(GATES, number), kick, right))
    return [_Job(pair, *each) for each in alike for pair in range(pairs)]


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, own: torch.Tensor, couplings: torch.Tensor, pairs: tuple[Place, ...], symmetric: bool
    ) -> torch.Tensor:
        own, couplings = own.contiguous(), couplings.resolve_conj().contiguous()
        gates = own.new_empty(len(own), *couplings.shape[1:])
        ctx.save_for_backward(own, couplings)
        ctx.pairs, ctx.jobs = pairs, _jobs(len(own), len(couplings), symmetric, len(pairs))
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
            for job, found in zip(ctx.jobs, torch.view_as_complex(sums.sum(-1)), strict=True):
                for which, total in zip((job.left, job.right), found, strict=True):
                    if which is not None:
                        to_couplings[which, job.pair] += total
        return to_own, to_couplings, None, None


def _call(
    name: str,
    jobs: list[_Job],
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
    nothing = _identity(size).data_ptr()
    one, all_own, all_gates = 16 * levels**2, 16 * own[0].numel(), 16 * gates[0].numel()
    starts = {"own": own.data_ptr(), "to_own": 0 if to_own is None else to_own.data_ptr()}
    table = array("q")
    for number, job in enumerate(jobs):
        first, second = pairs[job.pair]
        values = {key: start + job.first * all_own + first * one for key, start in starts.items()}
        for side, (key, which) in enumerate((("left", job.left), ("right", job.right))):
            at = None if which is None else (which * len(pairs) + job.pair) * 16 * size**2
            values[key] = nothing if at is None else couplings.data_ptr() + at
            sum_ = 2 * number + side
            values[f"to_{key}"] = 0 if sums is None else sums.data_ptr() + sum_ * 16 * LANES * size**2
        values |= {
            "count": job.number,
            "own_stride": job.stride * all_own // 8,
            "second": (second - first) * one // 8,
            "gates": gates.data_ptr() + job.first * all_gates + job.pair * 16 * size**2,
            "gates_stride": job.stride * all_gates // 8,
        }
        table.extend(values[entry] for entry in JOB)
    arguments = array("q", [0, len(jobs), table.buffer_info()[0]])
    threads = threads_for(2 * gates.numel() * size, len(jobs))
    _library(levels).on_threads(name, arguments.buffer_info()[0], threads)


@lru_cache(maxsize=8)
def _identity(size: int) -> torch.Tensor:
    return torch.eye(size, dtype=torch.complex128)


@lru_cache(maxsize=8)
def _library(levels: int) -> Library:
    return Library(
        Recipe(
            f"merging {levels} {LANES}",
            ("merge", "gradient"),
            lambda: merging_kernels.module(levels, LANES),
            SOURCES,
        )
    )
