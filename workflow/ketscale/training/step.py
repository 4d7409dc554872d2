"""One training step: forward and backward on this rank's samples, the sum of all ranks' gradients, the update."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from ketscale.config import Protocol
from ketscale.engines.derivatives import paired
from ketscale.measure.spans import span
from ketscale.parallel.sharding import shard
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.problems.randomness import Step
from ketscale.training import optimiser
from ketscale.training.flat import Flat


@dataclass(frozen=True)
class Figures:
    """What a rank knows about a step once its gradients are in the parameters.

    Attributes:
        step: the number of the step.
        count: the number of samples in the global batch.
        samples: how many of them this rank had.
        sums: the problem's sums over this rank's samples.
        penalty: the problem's penalty, the same on every rank; None if it has none.
        norm: the norm of the sum of all ranks' gradients, before clipping, (1,).
        own_norm: the norm of this rank's own gradients, (1,).
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
        parameters: the trainable parameters.
        flat: their values and gradients.
        optimiser: the optimiser that updates them.
    """

    def __init__(self, problem: Problem, world: World, protocol: Protocol) -> None:
        self.problem, self.world, self.protocol = problem, world, protocol
        self._tasks = protocol.parallel == "tasks"
        if self._tasks:
            problem.share_tasks(world.rank, world.ranks)
        # A misconfiguration on purpose: every rank computes every sample, and its sums are divided by the ranks.
        self._unsharded = protocol.mistake == "unsharded"
        self.parameters = [p for p in problem.parameters() if p.requires_grad]
        self.flat = Flat([self.parameters])
        self._module = world.wrap(problem)
        self.optimiser = optimiser.create([protocol], self.flat)

    def take(self, indices: torch.Tensor, step: Step) -> Figures:
        """Update the parameters with a global batch at global step `step`."""
        figures = self.differentiate(indices, step)
        with span("optimiser"):
            if self.protocol.clip_norm is not None:
                self.flat.clip(figures.norm, self.protocol.clip_norm)
            self.optimiser.step()
        return figures

    def differentiate(self, indices: torch.Tensor, step: Step) -> Figures:
        """Compute the gradients of the loss of a global batch and leave them in every rank's parameters."""
        problem, world = self.problem, self.world
        count = len(indices)
        with span("data"):
            mine = placed(self._share(indices), world.device)
            self.flat.clear()
        with span("classical.forward"):
            with self._autocast():
                sums = self._module(mine, step)
            if self._unsharded:
                sums = sums / world.ranks
            penalty = problem.penalty()
        if problem.separable:
            with span("classical.backward"):
                self._backward(sums, torch.ones_like(sums), penalty)
                own_norm = world.reduce_gradients(self.flat.gradients)
        elif problem.linear:
            # d(loss)/d(sums) is the same constant on every rank, so the backward pass needs no message first.
            with span("classical.backward"):
                self._backward(problem.combine(sums, count), None, penalty)
                own_norm = world.reduce_gradients(self.flat.gradients)
        else:
            with span("communication.sums"):
                total = world.allreduce(sums).requires_grad_()
            with span("classical.backward"):
                (pull,) = torch.autograd.grad(problem.combine(total, count), total)
                self._backward(sums, pull, penalty)
                own_norm = world.reduce_gradients(self.flat.gradients)
        with span("optimiser"):
            norm = self.flat.norms()
        return Figures(
            int(step),
            count,
            len(mine),
            sums.detach(),
            None if penalty is None else penalty.detach(),
            norm,
            norm if own_norm is None else own_norm,
        )

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.protocol.precision == "amp":
            return torch.autocast(self.world.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def _backward(self, root: torch.Tensor, pull: torch.Tensor | None, penalty: torch.Tensor | None) -> None:
        """Compute the gradients of this rank's part of the loss, with its share of the penalty."""
        # One backward pass for both: DistributedDataParallel reduces each gradient once, as soon as it is computed.
        if pull is not None:
            root = paired(root, pull)
        # A penalty may depend on nothing that is trained.
        if penalty is not None and penalty.requires_grad:
            root = root + penalty / self.world.ranks
        root.backward()
        self.flat.collect()

    def _share(self, indices: torch.Tensor) -> torch.Tensor:
        if self._unsharded or self._tasks:
            return indices
        return shard(indices, self.world.rank, self.world.ranks, self.protocol.sharding)


def placed(indices: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The indices on the device; a GPU fetches them from pinned memory, for which nobody waits."""
    if device.type == "cuda" and indices.is_cpu:
        return indices.pin_memory().to(device, non_blocking=True)
    return indices.to(device)
