"""The base of the problems of `control`: their tasks, the outputs for them, and how these are judged."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from ketscale.engines.dynamics.tasks import Tasks
from ketscale.measure.form import Evolved
from ketscale.problems.control.deviations import deviations
from ketscale.problems.control.metrics import all_measures, measures
from ketscale.problems.control.objective import Objective
from ketscale.problems.control.tasks import Distribution
from ketscale.problems.control.workload import Rates
from ketscale.problems.problem import Problem


class Outputs(NamedTuple):
    """The outputs of a model for tasks.

    overlaps: (n, columns), after each number of adaptation steps or of each start. pulses: the tasks' final controls
    (n, segments, controls).
    """

    overlaps: torch.Tensor
    pulses: torch.Tensor

    @property
    def rows(self) -> torch.Tensor:
        """One row for each task, (n, columns + segments * controls), which ranks gather."""
        return torch.cat([self.overlaps, self.pulses.flatten(-2)], -1)

    @classmethod
    def of_rows(cls, rows: torch.Tensor, shape: tuple[int, ...]) -> Outputs:
        """The parts of rows whose pulses have this shape (segments, controls)."""
        width = prod(shape)
        return cls(rows[:, :-width], rows[:, -width:].unflatten(1, shape))


class ControlProblem(Problem):
    """Tasks of a workload, whose outputs are the rows of `Outputs`.

    model: its attribute `shape` is that of a task's pulse, (segments, controls). arguments: see `Problem`. singly: see
    `Distribution`.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, arguments: dict[str, Any], singly: bool = False
    ) -> None:
        super().__init__()
        self.model, self.objective, self.arguments = model, objective, arguments
        self.distribution = Distribution(objective.workload, singly)
        self.splits = objective.workload.held_out

    @abstractmethod
    def judged(self, overlaps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Select from overlaps (n, columns) those that count, (n,), and those after 0, 1, ... steps of adaptation."""

    @abstractmethod
    def environment(self, split: str, count: int) -> Rates:
        """The environments in which the first `count` tasks of a split are judged."""

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """The loss and the infidelity of the overlaps that count, and when full all other metrics."""
        overlaps, pulses = self._parts(outputs)
        final, course = self.judged(overlaps)
        if not full:
            return measures(self.objective, final)
        environment = self.environment(split, len(outputs))
        found = all_measures(self.objective, final, course, pulses, environment)
        like = next(self.model.parameters())
        return found | deviations(self.objective, pulses, environment, like, split)

    def evolution(self) -> Evolved | None:
        """See `Problem.evolution`: that of one validation task."""
        if not hasattr(self.objective.propagator, "evolution"):
            return None
        shape: Any = self.model.shape
        like = next(self.model.parameters())
        parts = (part.to(like) for part in self.environment("validation", 1))
        tasks = Tasks(like.new_zeros(1, *shape), self.objective.workload.duration, *parts)
        found: Evolved = self.objective.propagator.evolution(self.objective.system, tasks)
        return found

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of `Outputs`, and the `tasks` (n, inputs) as networks see them, fp64."""
        tasks = self.distribution.fixed(split, torch.arange(len(outputs)), torch.float64).inputs
        return {**self._parts(outputs)._asdict(), "tasks": tasks}

    def _parts(self, outputs: torch.Tensor) -> Outputs:
        shape: Any = self.model.shape
        return Outputs.of_rows(outputs, shape)
