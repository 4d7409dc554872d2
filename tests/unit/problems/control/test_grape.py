"""GRAPE reaches what is known in closed form; each task goes its own way, whatever shares the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ketscale.engines.dynamics.propagators import propagator
from ketscale.problems.control.grape import Grape, TaskPulses
from ketscale.problems.control.problem import Objective, Outputs
from ketscale.problems.control.workloads import ControlWorkload, QubitSpectrum
from tests.toys import trainer

LBFGS = {"optimiser": "l-bfgs", "clip_norm": None, "weight_decay": 0.0}
ADAM = {"optimiser": "adam", "clip_norm": None, "weight_decay": 0.0, "learning_rate": 0.1}


def grape(workload: ControlWorkload, noise: bool = True, segments: int = 8) -> Grape:
    objective = Objective(workload, propagator("exact"))
    pulses = TaskPulses(
        sum(workload.held_out.values()),
        8,
        segments,
        len(objective.system.controls),
        workload.amplitude,
        workload.limit,
    )
    problem = Grape(pulses, objective, seed=0, arguments={}).convert(torch.device("cpu"), torch.float64)
    if not noise:
        problem.get_buffer("environment_rates").zero_()
    return problem


def optimised(problem: Grape, epochs: int = 100, **protocol: Any) -> dict[str, torch.Tensor]:
    """The infidelities (tasks, starts) of each split at the end of training."""
    result = trainer(problem, {"epochs": epochs, **LBFGS, **protocol}, batch=len(problem.model.pulses))
    result.run()
    return {split: 1 - parts(problem, result.outputs(split)).overlaps for split in problem.splits}


def parts(problem: Grape, rows: torch.Tensor) -> Outputs:
    return Outputs.of_rows(rows, problem.model.pulses.shape[2:])


def test_without_noise_every_start_of_a_qubit_reaches_its_target() -> None:
    """Also those that take longer than the validation's tasks."""
    workload = QubitSpectrum(detuning=(-3.0, 3.0), validation=1, test=8)
    assert all(result.abs().max() < 1e-12 for result in optimised(grape(workload, noise=False)).values())


def test_with_depolarising_noise_it_reaches_the_closed_form() -> None:
    """Jumps X, Y and Z of one rate commute with every pulse, so the best fidelity is (1 + exp(-4 rate)) / 2."""
    problem = grape(
        QubitSpectrum(strength=(1.0, 30.0), cutoff=(20.0, 40.0), detuning=(-1.0, 1.0), validation=3, test=4)
    )
    rates = problem.get_buffer("environment_rates")[:, 0]
    assert rates.max() > 3 * rates.min()
    result = torch.cat([*optimised(problem).values()]).amin(1)
    torch.testing.assert_close(result, (1 - torch.exp(-4 * rates)) / 2, rtol=1e-10, atol=0)


@pytest.mark.parametrize("protocol", [LBFGS, ADAM])
def test_a_tasks_result_depends_on_no_other_task(protocol: dict[str, Any]) -> None:
    few, many = (
        optimised(grape(QubitSpectrum(detuning=(-3.0, 3.0), validation=2, test=test)), epochs=12, **protocol)
        for test in (1, 30)
    )
    assert torch.equal(few["validation"], many["validation"])
    assert torch.equal(few["test"], many["test"][:1])
    assert few["test"].max() > 1e-8  # still on its way, where nothing hides a difference


def test_the_loss_and_the_metrics_are_those_of_the_best_starts() -> None:
    problem = grape(QubitSpectrum(validation=2, test=3, fidelity="squared"))
    sums = problem(torch.arange(5), 0).detach()
    outputs = {split: problem.outputs(split, torch.arange(count)) for split, count in problem.splits.items()}
    best = torch.cat([parts(problem, rows).overlaps for rows in outputs.values()]).amax(1)
    assert float(problem.combine(sums, 5)) == pytest.approx(float(1 - best.square().mean()))
    metrics = problem.metrics("test", outputs["test"], full=True)
    assert 0 < metrics["simulator_error"] < 1e-13
    assert metrics["infidelity"] == pytest.approx(float(1 - best[2:].mean()))
    assert metrics["infidelity_0"] is None
    none = parts(problem, problem.outputs("test", torch.arange(0)))
    assert (none.overlaps.shape, none.pulses.shape) == ((0, 8), (0, 8, 2))
