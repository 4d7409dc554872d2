"""The problem of networks that make pulses for any task: a sample is a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ketscale.measure.spans import span
from ketscale.problems.control.adaptation import Inner, Losses, course, meta_loss
from ketscale.problems.control.deviations import deviations
from ketscale.problems.control.metrics import SHOWN, all_figures, figures
from ketscale.problems.control.objective import Objective
from ketscale.problems.control.outputs import Outputs
from ketscale.problems.control.policy import Network
from ketscale.problems.control.specification import Adaptation
from ketscale.problems.control.tasks import Distribution, Drawn
from ketscale.problems.control.workload import Rates
from ketscale.problems.problem import Problem
from ketscale.problems.randomness import Step
from ketscale.problems.samplers import Sampler, Shuffled, Stream

Environment = Callable[[], Rates]


class MetaLearning(Problem):
    """The mean over tasks of the loss after adaptation, with a gradient as `adaptation.meta_loss` says.

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
        super().__init__()
        self.model, self.objective, self.kind, self.inner, self.seed = model, objective, kind, inner, seed
        self.arguments, self.loop = arguments, loop
        workload = objective.workload
        self.distribution = Distribution(workload, singly=objective.creation == "once")
        self.splits = workload.held_out
        self.sampler: Sampler = (
            Stream(workload.epoch_steps) if workload.tasks is None else Shuffled(workload.tasks)
        )

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        parts = indices.split(1) if self.loop else [indices]
        return torch.stack([self._sum(part, step) for part in parts]).sum().reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean over tasks."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The rows of `Outputs`, with overlaps to the last step that metrics show."""
        drawn = self._fixed(split, indices)
        inner = self.inner._replace(steps=max(self.inner.steps, *SHOWN))
        support, query = self._environments(drawn)
        pulses = list(course(self.model, drawn.inputs, inner, self._losses(support)))
        with torch.no_grad():
            overlaps = torch.stack([self.objective.overlaps(each, query()) for each in pulses], 1)
        return Outputs(overlaps, pulses[self.inner.steps]).rows

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """The loss and the infidelity after the model's own number of steps, and when full all other metrics."""
        overlaps, pulses = Outputs.of(outputs, self.model.shape)
        final = overlaps[:, self.inner.steps]
        if not full:
            return figures(self.objective, final)
        environment = self._fixed(split, torch.arange(len(outputs))).query
        found = all_figures(self.objective, final, overlaps, pulses, environment)
        return found | deviations(self.objective, pulses.shape[1], next(self.model.parameters()), split)

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of `Outputs`, and the `tasks` (n, inputs), fp64."""
        tasks = self.distribution.fixed(split, torch.arange(len(outputs)), torch.float64).inputs
        return {**Outputs.of(outputs, self.model.shape)._asdict(), "tasks": tasks}

    def _sum(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        with span("data"):
            drawn = self._training(indices, step)
        support, query = (self._losses(environment) for environment in self._environments(drawn))
        return meta_loss(self.kind, self.model, drawn.inputs, self.inner, support, query)

    def _training(self, indices: torch.Tensor, step: Step) -> Drawn:
        if self.objective.workload.tasks is None:
            return self.distribution.fresh(int(self.seed), step, indices, self._dtype_and_device[0])
        return self._fixed("train", indices)

    def _fixed(self, split: str, numbers: torch.Tensor) -> Drawn:
        dtype, device = self._dtype_and_device
        return self.distribution.fixed(split, numbers.to(device), dtype)

    def _environments(self, drawn: Drawn) -> tuple[Environment, Environment]:
        """What gives those for adaptation and for judgement to each evaluation."""
        if self.objective.creation == "again":
            created = partial(self.distribution.created, dtype=drawn.inputs.dtype)
            return partial(created, drawn.values[0]), partial(created, drawn.values[1])
        return lambda: drawn.support, lambda: drawn.query

    def _losses(self, environment: Environment) -> Losses:
        return lambda controls: self.objective.losses(controls, environment())

    @property
    def _dtype_and_device(self) -> tuple[torch.dtype, torch.device]:
        parameter = next(self.model.parameters())
        return parameter.dtype, parameter.device
