"""What is measured of tasks: each metric is that of a plain loop over tasks, whatever the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ketscale.engines.dynamics.propagators import propagator
from ketscale.problems.control.grape import Grape, TaskPulses
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Policy, RobustPulse
from ketscale.problems.control.problem import Distribution, Objective
from ketscale.problems.control.workloads import METRICS, QubitRelaxation
from ketscale.problems.problem import Problem

MODELS = ("policy", "robust_grape", "grape")
TESTED = 4


def problem_of(model: str, test: int = TESTED) -> Problem:
    """An untrained model of relaxing qubits."""
    workload = QubitRelaxation(detuning=(-2.0, 2.0), validation=2, test=test)
    objective = Objective(workload, propagator("exact"))
    torch.manual_seed(0)
    if model == "grape":
        pulses = TaskPulses(2 + test, starts=3, segments=5, amplitude=3.0)
        return Grape(pulses, objective, seed=0, arguments={}).double()
    ranges = {end: [getattr(each, end) for each in workload.varied] for end in ("low", "high")}
    network = (
        Policy(segments=5, inputs="normalised", amplitude=3.0, width=6, depth=1, **ranges)
        if model == "policy"
        else RobustPulse(segments=5, amplitude=3.0)
    )
    return MetaLearning(network, objective, "fomaml", Inner(3, 0.4), seed=0, arguments={}).double()


def measured(problem: Problem) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """All metrics of the test, and what is kept of the outputs."""
    rows = problem.outputs("test", torch.arange(problem.splits["test"]))
    return problem.metrics("test", rows, full=True), problem.predictions("test", rows)


@pytest.mark.parametrize("model", MODELS)
def test_what_describes_the_tasks_is_that_of_a_loop_over_them(model: str) -> None:
    problem = problem_of(model)
    result, values = measured(problem)
    assert {metric.name for metric in METRICS} <= set(result)
    tasks = Distribution(problem.objective.workload).fixed("test", torch.arange(TESTED), torch.float64)
    assert set(values) == {"overlaps", "pulses", "tasks"}
    assert torch.equal(values["tasks"], tasks.inputs) and tasks.inputs.shape == (TESTED, 3)
    kept_overlaps = problem.objective.overlaps(values["pulses"], tasks.environment)
    best = values["overlaps"].amax(1) if model == "grape" else values["overlaps"][:, 3]
    torch.testing.assert_close(kept_overlaps, best, rtol=0, atol=1e-12)
    rows = problem.outputs("test", torch.arange(TESTED))
    assert set(problem.metrics("test", rows, full=False)) == {"loss", "infidelity"}
