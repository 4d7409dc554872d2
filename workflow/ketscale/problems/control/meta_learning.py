"""The problem of networks that make pulses for any task: a sample is a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ketscale.measure.spans import span
from ketscale.problems.control.adaptation import Inner, Kind, Losses, course, meta_loss
from ketscale.problems.control.metrics import SHOWN, figures
from ketscale.problems.control.objective import Objective
from ketscale.problems.control.policy import Network
from ketscale.problems.control.tasks import Distribution, Drawn
from ketscale.problems.control.workload import Rates
from ketscale.problems.problem import Problem
from ketscale.problems.randomness import Step
from ketscale.problems.samplers import Sampler, Shuffled, Stream

Environment = Callable[[], Rates]


class MetaLearning(Problem):
    """The mean over tasks of the loss after adaptation, with a gradient as `adaptation.meta_loss` says.

    The outputs for a task are its overlaps after 0, 1, ... steps of adaptation.
    """

    model: Network
    linear = True

    def __init__(
        self,
        model: Network,
        objective: Objective,
        kind: Kind,
        inner: Inner,
        seed: int,
        arguments: dict[str, Any],
    ) -> None:
        super().__init__()
        self.model, self.objective, self.kind, self.inner, self.seed = model, objective, kind, inner, seed
        self.arguments = arguments
        workload = objective.workload
        self.distribution = Distribution(workload, singly=objective.creation == "once")
        self.splits = workload.held_out
        self.sampler: Sampler = (
            Stream(workload.epoch_steps) if workload.tasks is None else Shuffled(workload.tasks)
        )

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        with span("data"):
            drawn = self._training(indices, step)
        support, query = (self._losses(environment) for environment in self._environments(drawn))
        return meta_loss(self.kind, self.model, drawn.inputs, self.inner, support, query).reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean over tasks."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """Overlaps (n, steps + 1) after 0, 1, ... steps; to the last step that metrics show."""
        device = self._dtype_and_device[1]
        drawn = self.distribution.fixed(split, indices.to(device), self._dtype_and_device[0])
        inner = self.inner._replace(steps=max(self.inner.steps, *SHOWN))

        support, query = self._environments(drawn)

        def overlaps(controls: torch.Tensor) -> torch.Tensor:
            return self.objective.overlaps(controls, query())

        return course(self.model, drawn.inputs, inner, self._losses(support), overlaps)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """The loss and the infidelities after the model's own number of steps, and when full after others."""
        return figures(self.objective, outputs[:, self.inner.steps], outputs if full else None)

    def _training(self, indices: torch.Tensor, step: Step) -> Drawn:
        if self.objective.workload.tasks is None:
            return self.distribution.fresh(self.seed, step, indices, self._dtype_and_device[0])
        return self.distribution.fixed("train", indices, self._dtype_and_device[0])

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
