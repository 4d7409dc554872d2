"""`ketscale bench cohorts`: a training step of several runs together, beside one run's step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from benchmarks import steps
from benchmarks.options import names, number, numbers, option
from benchmarks.runner import WRONG, Call, Column, Row, Untimed, time_or_status
from benchmarks.steps import ModelCase, TrainingSteps
from ketscale.parallel.single import Single
from ketscale.problems.problem import Problem
from ketscale.training.stack import Stack
from ketscale.training.step import Stepper

# Losses in fp32 of runs together and alone, over CHECKED steps.
LOSS_TOLERANCE = 1e-3
CHECKED = 5
ALONE = "alone"
# Also models that gained too little to train together in studies.
ABLE = [*steps.MODELS, *steps.ON_TASKS]


@dataclass(kw_only=True)
class Cohorts(TrainingSteps):
    """Steps by the simulator of a classical model's own kind, by fused, or of control by exact.

    Times are of a step of all runs. Runs whose losses differ from the one that is alone are not timed.
    """

    text = "a training step of several runs together and of one"
    subject = "trained"
    # gain: how many times as long the runs take one after the other.
    columns = (Column("runs", "runs"), Column("gain", "gain", lambda gain: f"{gain:.3g}x"))

    models: tuple[str, ...] = option(("vqc",), names(ABLE), "models")
    batch: tuple[int, ...] = option((64,), numbers(1), "batch sizes")
    runs: tuple[int, ...] = option((4, 16), numbers(2), "numbers of runs")
    repeats: int = option(15, number(5), "timed repeats of a case, at least 5")
    threads: int = option(1, number(1), "threads of the process")

    def subjects(self, case: ModelCase) -> list[str]:
        """The run that is alone first: the others have to agree with it."""
        self._taken: dict[str, Call] = {}
        return [ALONE, *(f"{runs} together" for runs in self.runs)]

    def prepare(self, case: ModelCase, name: str, row: Row) -> Call:
        """A step, which gives the sums of the first run."""
        row["runs"] = 1 if name == ALONE else int(name.split()[0])
        take, numbers = _step(case, row["runs"]), itertools.count()
        self._taken[name] = lambda: take(min(next(numbers), CHECKED))
        return self._taken[name]

    def agree(self, case: ModelCase, name: str, row: Row, result: Any) -> None:
        """The first of the runs is the one that is alone."""
        values = [result, *(self._taken[name]() for _ in range(CHECKED - 1))]
        if name == ALONE:
            self._expected = values
        if not all(
            torch.allclose(actual, expected, rtol=LOSS_TOLERANCE, atol=0)
            for actual, expected in zip(values, self._expected, strict=True)
        ):
            raise Untimed(WRONG, f"losses {_values(values)}, alone {_values(self._expected)}")

    def finish(self, case: ModelCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add what is gained over the run that is alone."""
        for row in rows.values():
            if row["median_s"] and row["runs"] > 1 and rows[ALONE]["median_s"]:
                row["gain"] = row["runs"] * rows[ALONE]["median_s"] / row["median_s"]

    @classmethod
    def said(cls, row: Row) -> str:
        """The time and the gain."""
        return time_or_status(row) + (f" (gain {row['gain']:.3g}x)" if row["gain"] else "")


def _step(case: ModelCase, runs: int) -> Callable[[int], torch.Tensor]:
    """The step of so many runs by its number."""
    arm = steps.arms(case.model)[0]
    world = Single(steps.run_at(case, arm, f"cpu-n1r1t{torch.get_num_threads()}"))
    lasting = msgspec.structs.replace(steps.problem_of(case, arm, world.device)[1], timed=False, steps=1000)
    samples = torch.arange(case.batch)
    problems = [_seeded(case, arm, world, number) for number in range(runs)]
    if runs == 1:
        single = Stepper(problems[0], world, lasting)
        return lambda step: single.take(samples, step).sums
    stack = Stack(problems, [lasting] * runs)
    return lambda step: stack.take([samples] * runs, step)[0].sums


def _seeded(case: ModelCase, arm: str, world: Single, number: int) -> Problem:
    """The problem of the run of this number, whose dropout is its own; number 0 is the one that is alone."""
    problem = steps.built(case, arm, world.device)
    assert isinstance(problem.seed, int)
    problem.seed += number
    return problem


def _values(sums: list[torch.Tensor]) -> list[float]:
    return [round(float(each.sum()), 6) for each in sums]
