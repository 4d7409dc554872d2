"""The problem of networks that make pulses for any task, and their adaptation to tasks by gradient steps: a sample is a task.

First- and second-order MAML: Finn, Abbeel and Levine, arXiv:1703.03400. Reptile: Nichol, Achiam and Schulman,
arXiv:1803.02999, whose gradient is the difference of the weights before and after, over the inner rate. All are sums
over tasks, so ranks that share the tasks compute the same.

All tensors may have a leading dimension, as in `policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch

from ketscale.engines.members import batched
from ketscale.engines.randomness import Step
from ketscale.problems.control.policy import Layers, Network, Update, linear
from ketscale.problems.control.problem import Batch, ControlProblem, Objective, Outputs
from ketscale.problems.control.workloads import ADAPTATION_STEPS, Adaptation, Rates
from ketscale.problems.samplers import Stream
from ketscale.spans import span

# The losses (n,) of tasks' controls (n, segments, controls); each depends on its own task alone.
Losses = Callable[[torch.Tensor], torch.Tensor]


class Inner(NamedTuple):
    """The inner loop: the number of gradient steps on each task's own weights, and their rate."""

    steps: int
    rate: float


def stepped(
    network: Network,
    layers: Layers,
    tasks: torch.Tensor,
    updates: Sequence[Update],
    rate: float,
    losses: Losses,
    differentiable: bool = False,
) -> list[Update]:
    """The tasks' updates with one more gradient step; if `differentiable`, they can be differentiated by the layers."""
    with torch.enable_grad():
        path = network.evaluated(layers, tasks, updates, rate)
        slopes = torch.autograd.grad(losses(path.controls).sum(), path.outputs, create_graph=differentiable)
    inputs = path.inputs if differentiable else [part.detach() for part in path.inputs]
    updates = updates or [Update.none(*pair) for pair in zip(inputs, slopes, strict=True)]
    return [update.then(*pair) for update, *pair in zip(updates, inputs, slopes, strict=True)]


def meta_loss(
    kind: Adaptation,
    network: Network,
    live: Layers,
    tasks: torch.Tensor,
    inner: Inner,
    losses: Losses,
) -> torch.Tensor:
    """The sum over tasks (n, inputs) of the losses after adaptation, whose gradient is the sum of meta-gradients.

    fomaml: the loss's gradient at the adapted weights. maml: its gradient by the weights before adaptation.
    reptile: the sum of the inner gradients. multi-task: there is no adaptation. live: the network's layers.
    """
    fixed = [(weight.detach(), bias.detach()) for weight, bias in live]
    updates: list[Update] = []
    for _ in range(0 if kind == "multi-task" else inner.steps):
        updates = stepped(
            network, live if kind == "maml" else fixed, tasks, updates, inner.rate, losses, kind == "maml"
        )
    if kind != "reptile":
        # The updates are constants but for maml, so the gradient passes through the adapted weights unchanged.
        return losses(network.evaluated(live, tasks, updates, inner.rate).controls).sum(-1)
    with torch.no_grad():
        loss = losses(network.evaluated(fixed, tasks, updates, inner.rate).controls).sum(-1)
    along = torch.stack(
        [
            (linear(update.inputs.flatten(-3, -2), *layer) * update.slopes.flatten(-3, -2)).sum((-2, -1))
            for update, layer in zip(updates, live, strict=True)
        ]
    ).sum(0)
    return loss + (along - along.detach())


def course(
    network: Network, live: Layers, tasks: torch.Tensor, inner: Inner, losses: Losses
) -> Iterator[torch.Tensor]:
    """The controls (n, segments, controls) after 0, 1, ... steps of adaptation, without gradients."""
    layers = [(weight.detach(), bias.detach()) for weight, bias in live]
    updates: list[Update] = []
    for step in range(inner.steps + 1):
        if step:
            updates = stepped(network, layers, tasks, updates, inner.rate, losses)
        with torch.no_grad():
            controls = network.evaluated(layers, tasks, updates, inner.rate).controls
        yield controls


class MetaLearning(ControlProblem):
    """The mean over tasks of the loss after adaptation, with a gradient as `meta_loss` says.

    The outputs for a task are its overlaps after 0, 1, ... steps of adaptation, and its pulse after the model's own
    number of steps. With `loop`, training evaluates one task after the other, the network too.
    """

    model: Network
    linear = True

    def __init__(
        self,
        model: Network,
        objective: Objective,
        kind: Adaptation,
        inner: Inner,
        seed: int,
        arguments: dict[str, Any],
        loop: bool = False,
    ) -> None:
        super().__init__(model, objective, arguments, singly=objective.creation == "once")
        self.kind, self.inner, self.seed, self.loop = kind, inner, seed, loop
        self.sampler = Stream(objective.workload.epoch_steps)

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        return self._for_all_runs(partial(self._sums, step), indices)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean over tasks."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The rows of `Outputs`, with overlaps to the last step that metrics show."""
        return self._for_all_runs(partial(self._outputs, split), indices)

    def selected(self, overlaps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The overlaps after the model's own number of steps, and all of them."""
        return overlaps[:, self.inner.steps], overlaps

    def _for_all_runs(
        self, function: Callable[[torch.Tensor, torch.Tensor, Layers], torch.Tensor], indices: torch.Tensor
    ) -> torch.Tensor:
        """Call a function of seeds (...), indices (..., n) and the layers once for all runs that train together."""

        def of_all(seeds: torch.Tensor, indices: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
            return function(seeds, indices, list(zip(parts[::2], parts[1::2], strict=True)))

        return batched(of_all, torch.as_tensor(self.seed), indices, *chain(*self.model.layers()))

    def _sums(self, step: Step, seeds: torch.Tensor, indices: torch.Tensor, layers: Layers) -> torch.Tensor:
        """The summed loss (..., 1) of all tasks, or of one task after the other with `loop`."""
        parts = indices.split(1, -1) if self.loop else [indices]
        return torch.stack([self._sum(step, seeds, part, layers) for part in parts], -1).sum(-1, keepdim=True)

    def _sum(self, step: Step, seeds: torch.Tensor, indices: torch.Tensor, layers: Layers) -> torch.Tensor:
        with span("data"):
            own, dtype = seeds.flatten().tolist(), self._dtype_and_device[0]
            batch = self.distribution.fresh(own, step, indices.flatten(), dtype)
        inputs = batch.inputs.unflatten(0, indices.shape)
        return meta_loss(self.kind, self.model, layers, inputs, self.inner, self._losses(batch))

    def _outputs(
        self, split: str, seeds: torch.Tensor, indices: torch.Tensor, layers: Layers
    ) -> torch.Tensor:
        batch = self._fixed(split, indices.flatten())
        inputs = batch.inputs.unflatten(0, indices.shape)
        inner = self.inner._replace(steps=max(self.inner.steps, *ADAPTATION_STEPS))
        pulses = list(course(self.model, layers, inputs, inner, self._losses(batch)))
        with torch.no_grad():
            overlaps = [_by_task(self.objective.overlaps, each, self._environment(batch)) for each in pulses]
        return Outputs(torch.stack(overlaps, -1), pulses[self.inner.steps]).rows

    def _fixed(self, split: str, numbers: torch.Tensor) -> Batch:
        dtype, device = self._dtype_and_device
        return self.distribution.fixed(split, numbers.to(device), dtype)

    def _environment(self, batch: Batch) -> Rates:
        """The tasks' environments, which the published loop without a cache creates again for each evaluation."""
        if self.objective.creation == "again":
            return self.distribution.created(batch.values, batch.inputs.dtype)
        return batch.environment

    def _losses(self, batch: Batch) -> Losses:
        return lambda controls: _by_task(self.objective.losses, controls, self._environment(batch))

    @property
    def _dtype_and_device(self) -> tuple[torch.dtype, torch.device]:
        parameter = next(self.model.parameters())
        return parameter.dtype, parameter.device


def _by_task(
    function: Callable[[torch.Tensor, Rates], torch.Tensor], controls: torch.Tensor, environment: Rates
) -> torch.Tensor:
    """Apply a function of tasks' controls (n, segments, controls) to controls (..., n, segments, controls): (..., n)."""
    return function(controls.flatten(0, -3), environment).unflatten(0, controls.shape[:-2])
