"""One training step: this rank's samples forward and backward, the gradients of all ranks, and the update."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ketscale.config import Protocol
from ketscale.measure.spans import span
from ketscale.parallel.sharding import shard
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.training import optimiser


@dataclass(frozen=True)
class Figures:
    """What a rank knows of a step whose gradients are in the parameters.

    Attributes:
        step: its number.
        count: samples of the global batch.
        samples: how many of them this rank had.
        sums: the problem's, over this rank's samples.
        penalty: the problem's, the same on every rank; None where it has none.
        norm: of the gradients of all ranks, before they are clipped.
        own_norm: of this rank's own gradients.
    """

    step: int
    count: int
    samples: int
    sums: torch.Tensor
    penalty: torch.Tensor | None
    norm: torch.Tensor
    own_norm: torch.Tensor


class Stepper:
    """Takes training steps of a problem in a world of ranks, as a protocol says.

    Attributes:
        parameters: those that are trained.
        optimiser: updates them.
    """

    def __init__(self, problem: Problem, world: World, protocol: Protocol) -> None:
        self.problem, self.world, self.protocol = problem, world, protocol
        self._tasks = protocol.parallel == "tasks"
        if self._tasks:
            problem.share_tasks(world.rank, world.ranks)
        # A mistake that studies make on purpose: every rank does every sample, and counts for its share of it.
        self._unsharded = protocol.mistake == "unsharded"
        self._module = world.wrap(problem)
        self.parameters = [p for p in problem.parameters() if p.requires_grad]
        self.optimiser = optimiser.create(protocol, self.parameters)

    def take(self, indices: torch.Tensor, step: int) -> Figures:
        """Update the parameters by a global batch at global step `step`."""
        figures = self.differentiate(indices, step)
        with span("optimiser"):
            limit = math.inf if self.protocol.clip_norm is None else self.protocol.clip_norm
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, figures.norm)
            self.optimiser.step()
        return figures

    def differentiate(self, indices: torch.Tensor, step: int) -> Figures:
        """Leave in every rank's parameters the gradients of the loss of a global batch."""
        problem, world = self.problem, self.world
        count = len(indices)
        with span("data"):
            mine = self._share(indices).to(world.device)
            self.optimiser.clear_gradients()
        with span("classical.forward"):
            amp = self.protocol.precision == "amp"
            with torch.autocast(world.device.type, torch.bfloat16, enabled=amp):
                sums = self._module(mine, step)
            if self._unsharded:
                sums = sums / world.ranks
            penalty = problem.penalty()
        if problem.linear:
            # d(loss)/d(sums) is the same constant on every rank: no message before the backward pass.
            with span("classical.backward"):
                self._backward(problem.combine(sums, count), None, penalty)
                own_norm = world.reduce_gradients(self.parameters)
        else:
            with span("communication.sums"):
                total = world.allreduce(sums).requires_grad_()
            with span("classical.backward"):
                (pull,) = torch.autograd.grad(problem.combine(total, count), total)
                self._backward(sums, pull, penalty)
                own_norm = world.reduce_gradients(self.parameters)
        with span("optimiser"):
            norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        return Figures(
            step,
            count,
            len(mine),
            sums.detach(),
            None if penalty is None else penalty.detach(),
            norm,
            norm if own_norm is None else own_norm,
        )

    def _backward(self, root: torch.Tensor, pull: torch.Tensor | None, penalty: torch.Tensor | None) -> None:
        """The gradients of this rank's part of the loss, to which each rank adds its share of the penalty."""
        if penalty is None:
            root.backward(pull)
            return
        # One backward pass for both: DistributedDataParallel reduces a gradient when the pass has it, and only once.
        share = torch.full_like(penalty, 1 / self.world.ranks)
        torch.autograd.backward((root, penalty), (pull, share))

    def _share(self, indices: torch.Tensor) -> torch.Tensor:
        if self._unsharded or self._tasks:
            return indices
        return shard(indices, self.world.rank, self.world.ranks, self.protocol.sharding)
