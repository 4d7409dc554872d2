"""One training step: forward and backward on this rank's samples, the sum of all ranks' gradients, the update."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from ketscale.config import Protocol
from ketscale.engines.randomness import Step
from ketscale.engines.vjp import VJP, offered
from ketscale.parallel.world import World, shard
from ketscale.private_torch import pull_back
from ketscale.problems.problem import Problem
from ketscale.spans import span
from ketscale.training import optimiser
from ketscale.training.direct import Direct, possible
from ketscale.training.flat import Flat
from ketscale.training.replayed import Replayed, may_replay
from ketscale.training.step_sums import StepSums


class Stepper:
    """Takes training steps of a problem in a world of ranks, as a protocol says.

    replays: whether steps on a GPU may be CUDA graphs (`replayed`).

    Attributes:
        parameters: the trainable parameters.
        flat: their values and gradients.
        optimiser: the optimiser that updates them.
    """

    def __init__(self, problem: Problem, world: World, protocol: Protocol, replays: bool = True) -> None:
        self.problem, self.world, self.protocol = problem, world, protocol
        self._tasks = protocol.parallel == "tasks"
        if self._tasks:
            problem.share_tasks(world.rank, world.ranks)
        # A misconfiguration on purpose: every rank computes every sample, and its sums are divided by the ranks.
        self._unsharded = protocol.mistake == "unsharded"
        self.parameters = [p for p in problem.parameters() if p.requires_grad]
        self.flat = Flat([self.parameters])
        self._module = world.wrap(problem)
        # The cotangents of a linear problem, by the number of samples.
        self._pulls: dict[int, torch.Tensor] = {}
        self.optimiser = optimiser.create([protocol], self.flat)
        # The reductions of DistributedDataParallel are part of autograd's backward pass.
        able = self._module is problem and protocol.precision != "amp" and not self._unsharded
        self._graphs = None
        if replays and able and world.ranks == 1 and world.device.type == "cuda" and may_replay(problem):
            self._graphs = Replayed(self._take, lambda: self.optimiser.learning_rates, world.device)
        able = able and possible(problem)
        self._direct = Direct(self._offered if able else None, self.flat)

    def take(self, indices: torch.Tensor, step: Step) -> StepSums:
        """Update the parameters with a global batch at global step `step`."""
        replayed = self._graphs and self._graphs.take(on_device(indices, self.world.device), step)
        return replayed or self._take(indices, step)

    @property
    def replayed(self) -> int:
        """How many steps were replays of CUDA graphs."""
        return self._graphs.count if self._graphs else 0

    @property
    def preparing(self) -> bool:
        """Whether the last step prepared such a graph, so that its time is no steady one."""
        return self._graphs is not None and self._graphs.preparing

    def _take(self, indices: torch.Tensor, step: Step) -> StepSums:
        sums = self.differentiate(indices, step)
        with span("optimiser"):
            self.optimiser.step(sums.norm)
        return sums

    def differentiate(self, indices: torch.Tensor, step: Step) -> StepSums:
        """Compute the gradients of the loss of a global batch and leave them in every rank's parameters."""
        world, count = self.world, indices.shape[0]
        with span("data"):
            own = on_device(self._share(indices), world.device)
        sums, penalty = self._direct.sums(own, step, lambda sums: self._pull(sums, count)), None
        if sums is None:
            sums, penalty = self._by_autograd(own, step, count)
        with span("classical.backward"):
            own_norm = world.reduce_gradients(self.flat.gradients)
        with span("optimiser"):
            norm = self.flat.norms()
        return StepSums(
            int(step),
            count,
            own.shape[0],
            sums.detach(),
            None if penalty is None else penalty.detach(),
            norm,
            norm if own_norm is None else own_norm,
        )

    def _by_autograd(
        self, indices: torch.Tensor, step: Step, count: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The sums of this rank's samples and the penalty, with their gradients."""
        with span("classical.forward"):
            self.flat.clear()
            with self._autocast():
                sums = self._module(indices, step)
            if self._unsharded:
                sums = sums / self.world.ranks
            penalty = self.problem.penalty()
        pull = self._pull(sums, count)
        with span("classical.backward"):
            self._backward(sums, pull, penalty)
        return sums, penalty

    def _offered(self, indices: torch.Tensor, step: Step) -> VJP | None:
        """What `Problem.vjp` offers, as `Direct` asks for it."""
        function = offered(self.problem)
        return function and function(indices, step)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.protocol.precision == "amp":
            return torch.autocast(self.world.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def _pull(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The gradient of the loss by this rank's sums."""
        if self.problem.separable:
            return torch.ones_like(sums)
        if not self.problem.linear:
            with span("communication.sums"):
                total = self.world.allreduce(sums)
            return cotangent(self.problem, total, count)
        # The same constant on every rank, so the backward pass needs no message first.
        if count not in self._pulls:
            self._pulls[count] = cotangent(self.problem, sums, count)
        return self._pulls[count]

    def _backward(self, sums: torch.Tensor, pull: torch.Tensor, penalty: torch.Tensor | None) -> None:
        """Compute the gradients of this rank's part of the loss, with its share of the penalty."""
        roots, cotangents = [sums], [pull]
        # A penalty may depend on nothing that is trained.
        if penalty is not None and penalty.requires_grad:
            roots.append(penalty)
            cotangents.append(torch.full_like(penalty, 1 / self.world.ranks))
        # One backward pass for both: DistributedDataParallel reduces each gradient once, as soon as it is computed.
        pull_back(roots, cotangents)
        self.flat.collect()

    def _share(self, indices: torch.Tensor) -> torch.Tensor:
        if self._unsharded or self._tasks:
            return indices
        return shard(indices, self.world.rank, self.world.ranks, self.protocol.sharding)


def cotangent(problem: Problem, sums: torch.Tensor, count: int) -> torch.Tensor:
    """The gradient of a problem's loss by its sums, from all ranks, at sums of `count` samples."""
    with torch.enable_grad():
        own = sums.detach().requires_grad_()
        (pull,) = torch.autograd.grad(problem.combine(own, count), own)
    return pull


def on_device(indices: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The indices on the device; a GPU fetches them from pinned memory, without a wait."""
    if device.type == "cuda" and indices.is_cpu:
        return indices.pin_memory().to(device, non_blocking=True)
    return indices.to(device)
