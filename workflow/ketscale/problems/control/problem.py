"""What the problems of `control` have in common: their tasks, objective, and outputs, and how these are judged.

A task is a function of a seed, a step or split, and its number.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from ketscale.dynamics import fidelity, violations
from ketscale.engines import randomness
from ketscale.engines.dynamics.methods import Creation
from ketscale.engines.dynamics.propagators import Propagator, propagator
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.engines.evolved import Evolved
from ketscale.problems.control.workloads import ADAPTATION_STEPS, DEVIATIONS, ControlWorkload, Rates
from ketscale.problems.problem import Problem
from ketscale.spans import span, with_backward_span

# FRESH draws the training tasks of a step; FIXED draws fixed sets, which belong to the workload.
FRESH = randomness.RandomStream("control.fresh")
FIXED = randomness.RandomStream("control.fixed")
SPLIT_KEYS = {"validation": 1, "test": 2}


class Batch(NamedTuple):
    """Tasks: what a model sees of them (n, inputs), their environments, and the quantities of these, fp64 (n, quantities)."""

    inputs: torch.Tensor
    environment: Rates
    values: torch.Tensor


class Distribution:
    """The tasks of a workload, whose environments are created for all at once, or `singly`."""

    def __init__(self, workload: ControlWorkload, singly: bool = False) -> None:
        self.workload = workload
        self._environment = self.created if singly else self._of_all
        quantities = workload.quantities
        self._low = torch.tensor([each.low for each in quantities], dtype=torch.float64)
        self._width = torch.tensor([each.high for each in quantities], dtype=torch.float64) - self._low
        self._inputs = [quantities.index(each) for each in workload.varied]

    def fresh(
        self, seeds: Sequence[int], step: randomness.Step, numbers: torch.Tensor, dtype: torch.dtype
    ) -> Batch:
        """The training tasks of a step with these numbers, int64 (n,); each seed in turn has as many of them."""
        keys = [FRESH.key(seed, step) for seed in seeds]
        key = keys[0] if len(keys) == 1 else randomness.each(keys, numbers)
        return self._batch(key, numbers, dtype)

    def fixed(self, split: str, numbers: torch.Tensor, dtype: torch.dtype) -> Batch:
        """The tasks of a split (validation or test) with these numbers, int64 (n,)."""
        return self._batch(FIXED.key(self.workload.seed, 0, SPLIT_KEYS[split]), numbers, dtype)

    def _batch(self, key: randomness.Key, numbers: torch.Tensor, dtype: torch.dtype) -> Batch:
        """The tasks as `dtype`, on the device of the numbers; drawn in fp64."""
        low, width = self._low.to(numbers.device), self._width.to(numbers.device)
        # As many numbers as when each task had further environments, so that tasks stay what they were.
        values = low + width * randomness.uniform(key, numbers, 3 * len(low))[:, : len(low)]
        return Batch(values[:, self._inputs].to(dtype), self._environment(values, dtype), values)

    def created(self, values: torch.Tensor, dtype: torch.dtype) -> Rates:
        """The environments of tasks with these values (n, quantities), one after the other, as published."""
        with span("dynamics.creation"):
            parts = [self._of_all(task, dtype) for task in values.split(1)]
            return Rates(*map(torch.cat, zip(*parts, strict=True)))

    def _of_all(self, values: torch.Tensor, dtype: torch.dtype) -> Rates:
        return Rates(*(part.to(dtype) for part in self.workload.environment(values)))


class Objective:
    """The overlaps Tr(rho sigma) and losses of pulses that begin in |0>, for a workload's system and target.

    creation: when its problem creates the environments of tasks.
    """

    def __init__(
        self, workload: ControlWorkload, propagator: Propagator, creation: Creation = "batch"
    ) -> None:
        self.workload, self.propagator, self.creation = workload, propagator, creation
        self.system = workload.system()
        self._observables = self.system.projector(workload.target)[None]
        self.target = self.system.targets[workload.target]

    @property
    def chance(self) -> float:
        """The mean infidelity of a random pure state."""
        return 1 - 1 / self.system.dimension

    def overlaps(self, controls: torch.Tensor, environment: Rates) -> torch.Tensor:
        """Tr(rho sigma) of tasks, real (n,): the state after the controls (n, segments, controls), and the target."""

        def forward(*tensors: torch.Tensor) -> torch.Tensor:
            with span("dynamics.forward"):
                every, rates, parameters = tensors
                tasks = Tasks(every, self.workload.duration, rates, parameters)
                return self.propagator.expval(self.system, tasks, self._observables)

        # A gradient's own derivatives, of any order, count as backward too.
        return with_backward_span("dynamics.backward", forward, controls, *environment)[:, 0]

    def loss(self, overlaps: torch.Tensor) -> torch.Tensor:
        """1 - F of each overlap, in the workload's form of F. A state that is not physical has a `squared` one without slope."""
        return 1 - (overlaps if self.workload.fidelity == "overlap" else overlaps.square().clamp(0, 1))

    def losses(self, controls: torch.Tensor, environment: Rates) -> torch.Tensor:
        """1 - F of tasks, real (n,)."""
        return self.loss(self.overlaps(controls, environment))


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
    def selected(self, overlaps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Select from overlaps (n, columns) those that count, (n,), and those after 0, 1, ... steps of adaptation."""

    def environment(self, split: str, count: int) -> Rates:
        """The environments in which the first `count` tasks of a split are judged."""
        like = next(self.model.parameters())
        numbers = torch.arange(count, device=like.device)
        return self.distribution.fixed(split, numbers, like.dtype).environment

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """The loss and the mean infidelity 1 - Tr(rho sigma) of the overlaps that count; when full all metrics."""
        objective, (overlaps, pulses) = self.objective, self._parts(outputs)
        final, course = self.selected(overlaps)
        metrics: dict[str, Any]
        metrics = {"loss": float(objective.loss(final).mean()), "infidelity": float((1 - final).mean())}
        if not full:
            return metrics
        environment = self.environment(split, len(outputs))
        for steps in ADAPTATION_STEPS:
            defined = course.shape[1] > steps
            metrics[f"infidelity_{steps}"] = float((1 - course[:, steps]).mean()) if defined else None
        metrics |= {"chance": objective.chance, "count": len(final)}
        like = next(self.model.parameters())
        return metrics | deviations(objective, pulses, environment, like, split)

    def evolution(self) -> Evolved | None:
        """See `Problem.evolution`: that of one validation task."""
        if not hasattr(self.objective.propagator, "evolution"):
            return None
        shape: Any = self.model.shape
        like = next(self.model.parameters())
        parts = (part.to(like) for part in self.environment("validation", 1))
        tasks = Tasks(like.new_zeros(1, *shape), self.objective.workload.duration, *parts)
        evolved: Evolved = self.objective.propagator.evolution(self.objective.system, tasks)
        return evolved

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of `Outputs`, and the `tasks` (n, inputs) as networks see them, fp64."""
        tasks = self.distribution.fixed(split, torch.arange(len(outputs)), torch.float64).inputs
        return {**self._parts(outputs)._asdict(), "tasks": tasks}

    def _parts(self, outputs: torch.Tensor) -> Outputs:
        shape: Any = self.model.shape
        return Outputs.of_rows(outputs, shape)


PULSES = randomness.RandomStream("control.random_pulses")


def deviations(
    objective: Objective, pulses: torch.Tensor, environment: Rates, like: torch.Tensor, split: str
) -> dict[str, float | None]:
    """The metrics `DEVIATIONS` of the objective's propagator, in the precision and on the device of `like`.

    exact_infidelity is the mean infidelity of the tasks' own pulses (n, segments, controls), in the environments in which
    they are judged. For the other two, each test task has one pulse, drawn by the workload's seed and the task's number and uniform within the amplitude. simulator_error is
    the largest |Tr(rho sigma) - exact| of a task's state from |0>, and negativity that of the least physical state; see
    `violations`. Exact is `exact` in fp64 by torch's operators with each segment in thirds, so that simulator_error of `exact` is its
    rounding error.
    All are None for other splits, since training depends on none, and NaN if a state has NaN.
    """
    if split != "test":
        return dict.fromkeys((metric.name for metric in DEVIATIONS), None)
    workload, system = objective.workload, objective.system
    numbers = torch.arange(workload.test, device=like.device)
    draws = randomness.uniform(PULSES.key(workload.seed, 0, SPLIT_KEYS[split]), numbers, pulses[0].numel())
    controls = (workload.amplitude * (2 * draws - 1)).unflatten(1, pulses.shape[1:])
    exact = propagator("exact", route="torch", strict=False)

    def states(by: Propagator, controls: torch.Tensor) -> torch.Tensor:
        environment = Distribution(workload).fixed(split, numbers, controls.dtype).environment
        return by.state(system, Tasks(controls, workload.duration, *environment))

    with torch.no_grad():
        final = states(objective.propagator, controls.to(like.dtype))
        reference = fidelity(states(exact, controls.double().repeat_interleave(3, 1)), objective.target)
        error = float((fidelity(final, objective.target) - reference).abs().max())
        rates = Rates(*(each.to(like.device, torch.float64) for each in environment))
        overlaps = Objective(workload, exact).overlaps(pulses.double(), rates)

    # Computing eigenvalues of NaN raises an error.
    negativity = float(violations(final).negativity.max()) if math.isfinite(error) else error
    return {
        "exact_infidelity": float((1 - overlaps).mean()),
        "simulator_error": error,
        "negativity": negativity,
    }
