"""What is measured of tasks: each metric is that of a plain loop over tasks, whatever the model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ketscale.engines.dynamics.propagators import propagator
from ketscale.problems.control.grape import Grape, TaskPulses
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Policy, RobustPulse
from ketscale.problems.control.problem import Distribution, Objective
from ketscale.problems.control.settings import METRICS
from ketscale.problems.control.workloads import QubitRelaxation
from ketscale.problems.problem import Problem

MODELS = ("policy", "robust_grape", "grape")
TESTED = 4


def problem_of(model: str, test: int = TESTED) -> Problem:
    """An untrained model of relaxing qubits."""
    workload = QubitRelaxation(detuning=(-2.0, 2.0), amplitude=3.0, validation=2, test=test)
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
    found, kept = measured(problem)
    assert {metric.name for metric in METRICS} <= set(found)
    query = (
        Distribution(problem.objective.workload)
        .fixed("test", torch.arange(TESTED), torch.float64)
        .environment
    )
    rates = [float(rate) for task in query.rates for rate in task]
    assert (found["lowest_rate"], found["highest_rate"]) == (min(rates), max(rates))
    pulses = [pulse.flatten().tolist() for pulse in kept["pulses"]]
    mean = [sum(each) / TESTED for each in zip(*pulses, strict=True)]
    squares = [
        ((value - usual) / 3.0) ** 2 for pulse in pulses for value, usual in zip(pulse, mean, strict=True)
    ]
    assert found["pulse_spread"] == pytest.approx(math.sqrt(sum(squares) / len(squares)), rel=1e-12)
    own, exchanged = (
        [
            float(problem.objective.overlaps(kept["pulses"][task : task + 1], type(query)(*(part[[other]] for part in query))))
            for task, other in enumerate(environments)
        ]
        for environments in (range(TESTED), [1, 2, 3, 0])
    )  # fmt: skip
    assert found["infidelity"] == pytest.approx(1 - sum(own) / TESTED, rel=1e-10)
    assert found["exchanged_infidelity"] == pytest.approx(1 - sum(exchanged) / TESTED, rel=1e-10)
    assert abs(found["exchanged_infidelity"] - found["infidelity"]) > 1e-4
    tasks = Distribution(problem.objective.workload).fixed("test", torch.arange(TESTED), torch.float64)
    assert set(kept) == {"overlaps", "pulses", "tasks"}
    assert torch.equal(kept["tasks"], tasks.inputs) and tasks.inputs.shape == (TESTED, 3)
    kept_overlaps = problem.objective.overlaps(kept["pulses"], tasks.environment)
    best = kept["overlaps"].amax(1) if model == "grape" else kept["overlaps"][:, 3]
    torch.testing.assert_close(kept_overlaps, best, rtol=0, atol=1e-12)
    rows = problem.outputs("test", torch.arange(TESTED))
    assert set(problem.metrics("test", rows, full=False)) == {"loss", "infidelity"}


def test_one_task_has_no_other_to_differ_from() -> None:
    found, _ = measured(problem_of("policy", test=1))
    assert found["pulse_spread"] is found["exchanged_infidelity"] is None
    assert 0 < found["lowest_rate"] < found["highest_rate"]
