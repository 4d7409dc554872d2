"""GRAPE: the controls of each held-out task optimised for that task alone, from several starts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.engines import randomness
from ketscale.engines.randomness import Step
from ketscale.problems.control.problem import SPLIT_KEYS, ControlProblem, Objective, Outputs
from ketscale.problems.control.workloads import Rates
from ketscale.problems.samplers import All

STARTS = randomness.RandomStream("control.starts")


class TaskPulses(nn.Module):
    """Controls (tasks, starts, segments, controls) in units of `amplitude`, clamped to `limit`."""

    def __init__(
        self,
        tasks: int = 1,
        starts: int = 8,
        segments: int = 20,
        controls: int = 2,
        amplitude: float = 2.0,
        limit: float = 10.0,
    ) -> None:
        super().__init__()
        self.shape = (segments, controls)
        self.amplitude, self.limit = amplitude, limit
        self.pulses = nn.Parameter(2 * torch.rand(tasks, starts, segments, controls) - 1)

    def forward(self, tasks: torch.Tensor) -> torch.Tensor:
        """Controls (n, starts, segments, controls) of the tasks with these numbers, int64 (n,)."""
        return (self.amplitude * self.pulses[tasks]).clamp(-self.limit, self.limit)


class Grape(ControlProblem):
    """The loss of each start of each task of validation and test, in this order; each is minimised by itself.

    `combine` is the mean over tasks of the best start's loss. The outputs for a task are its starts' overlaps, and
    the best one's pulse. A start is drawn from the run's seed and the task's split and number, so it is the same in any
    set of tasks.
    """

    model: TaskPulses
    linear = False
    separable = True

    def __init__(self, model: TaskPulses, objective: Objective, seed: int, arguments: dict[str, Any]) -> None:
        super().__init__(model, objective, arguments)
        self.sampler = All(len(model.pulses))
        environments = [
            self.distribution.fixed(split, torch.arange(count), torch.float64).environment
            for split, count in self.splits.items()
        ]
        for name, parts in zip(Rates._fields, zip(*environments, strict=True), strict=True):
            self.register_buffer(f"environment_{name}", torch.cat(parts), persistent=False)
        shape = model.pulses.shape[1:]
        phases = [
            randomness.uniform(STARTS.key(seed, 0, SPLIT_KEYS[split]), torch.arange(count), shape.numel())
            for split, count in self.splits.items()
        ]
        with torch.no_grad():
            model.pulses.copy_((2 * torch.cat(phases) - 1).unflatten(1, shape))

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The losses (tasks * starts,) of all rows; 0 for tasks that are not among the indices."""
        losses = self.objective.loss(self._overlaps(indices))
        return losses.new_zeros(self._rows).index_copy(0, indices, losses).flatten()

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean over tasks of the best start's loss."""
        return sums.unflatten(0, self._rows).amin(1).mean()

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The rows of `Outputs`, with the overlaps of all starts."""
        tasks = self._numbers(split, indices)
        with torch.no_grad():
            overlaps = self._overlaps(tasks)
            pulses = self.model(tasks)[torch.arange(len(tasks)), self._best(overlaps)]
        return Outputs(overlaps, pulses).rows

    def selected(self, overlaps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The overlaps of each task's best start, which no steps of adaptation follow."""
        return overlaps[torch.arange(len(overlaps)), self._best(overlaps)], overlaps[:, :0]

    @property
    def _rows(self) -> torch.Size:
        """(tasks, starts)."""
        return self.model.pulses.shape[:2]

    def _overlaps(self, tasks: torch.Tensor) -> torch.Tensor:
        """Overlaps (n, starts) of the tasks with these numbers, int64 (n,)."""
        starts = self._rows[1]
        environment = Rates(*(part.repeat_interleave(starts, 0) for part in self._environment(tasks)))
        return self.objective.overlaps(self.model(tasks).flatten(0, 1), environment).unflatten(
            0, (-1, starts)
        )

    def _best(self, overlaps: torch.Tensor) -> torch.Tensor:
        """The number (n,) of each task's best start, of overlaps (n, starts)."""
        return self.objective.loss(overlaps).argmin(1)

    def _environment(self, tasks: torch.Tensor) -> Rates:
        return Rates(*(self.get_buffer(f"environment_{name}")[tasks] for name in Rates._fields))

    def _numbers(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The numbers, among all tasks, of those of a split."""
        before = 0 if split == "validation" else self.splits["validation"]
        return indices.to(self.model.pulses.device) + before
