"""Merged gates by machine code, with a gate a lane: the function `splitting.merged`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.pulses import merging_kernels
from ketscale.engines.pulses.merging_kernels import MergedSizes, MergingJob
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
    return torch.tensor(jobs, dtype=torch.int64)


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
        _call("merge", ctx.jobs, gates=gates, **tensors)
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
        _call("gradient", ctx.jobs, own, couplings, gates, **gradients)
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
    functions = merging_kernels.merge, merging_kernels.gradient
    return Kernel(functions, merging_kernels.ARGUMENTS, torch.float64, LANES, MergedSizes(levels))
