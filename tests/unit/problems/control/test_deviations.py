"""The error and the unphysical states of a run's propagator, against QuTiP's, and for any ranks."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
import qutip
import torch
from scipy.linalg import expm

from ketscale.engines import randomness
from ketscale.engines.dynamics.propagators import propagator
from ketscale.problems.control.problem import PULSES, SPLIT_KEYS, Distribution, Objective, deviations
from ketscale.problems.control.specification import WORKLOADS
from ketscale.problems.control.workloads import QubitRelaxation

WORKLOAD = QubitRelaxation(t1=(2.0, 5.0), t2=(1.0, 3.0), detuning=(-1.0, 1.0), test=3, seed=4)
SEGMENTS = 6


def deviations_of(name: str, dt: float | None = None, workload: Any = WORKLOAD, **more: Any) -> Any:
    """The error and the negativity."""
    result = measured(workload, name, dt, torch.float64, **more)
    return result["simulator_error"], result["negativity"]


def measured(workload: Any, name: str, dt: float | None, dtype: Any, **more: Any) -> dict[str, Any]:
    """All deviations, where each task's own pulse is 0.7 on the first control and -0.4 on the second."""
    pulses = torch.tensor([0.7, -0.4], dtype=dtype).repeat(workload.test, SEGMENTS, 1)
    environment = Distribution(workload).fixed("test", torch.arange(workload.test), dtype).environment
    objective = Objective(workload, propagator(name, dt, **more))
    return deviations(objective, pulses, environment, torch.zeros(1, dtype=dtype), "test")


def by_qutip(task: int, pulse: Any = None) -> Any:
    """The Liouvillians of a task's segments, of a random pulse unless one is given, written from the definition."""
    key = PULSES.key(WORKLOAD.seed, 0, SPLIT_KEYS["test"])
    noise = randomness.uniform(key, torch.tensor([task]), 2 * SEGMENTS).reshape(SEGMENTS, 2).numpy()
    environment = Distribution(WORKLOAD).fixed("test", torch.tensor([task]), torch.float64).environment
    relaxing, dephasing = environment.rates[0].tolist()
    jumps = [math.sqrt(relaxing) * qutip.destroy(2), math.sqrt(dephasing / 2) * qutip.sigmaz()]
    values = []
    for x, y in WORKLOAD.amplitude * (2 * noise - 1) if pulse is None else [pulse] * SEGMENTS:
        hamiltonian = (
            environment.parameters[0, 0].item() * qutip.sigmaz() + x * qutip.sigmax() + y * qutip.sigmay()
        )
        values.append(qutip.liouvillian(hamiltonian, jumps).full())
    return values


def evolved(generators: list[Any], steps: int | None) -> Any:
    """|0><0| after the segments: exactly, or with that many Euler steps in each."""
    rho = np.array([1, 0, 0, 0], dtype=complex)
    for generator in generators:
        if steps is None:
            rho = expm(generator / SEGMENTS) @ rho
        for _ in range(steps or 0):
            rho = rho + generator @ rho / (SEGMENTS * steps)
    return rho.reshape(2, 2, order="F")


def test_they_are_those_of_an_evolution_by_qutips_operators() -> None:
    errors, negativities = [], []
    for task in range(WORKLOAD.test):
        generators = by_qutip(task)
        exact, euler = evolved(generators, None), evolved(generators, 5)
        errors.append(abs((euler - exact)[1, 1].real))
        negativities.append(-np.linalg.eigvalsh(euler)[0])
    assert deviations_of("euler", 1 / 30) == pytest.approx((max(errors), max(negativities)), rel=1e-10)
    assert max(negativities) > 1e-3


def test_pulses_that_were_trained_coarsely_are_judged_exactly() -> None:
    overlaps = [evolved(by_qutip(task, (0.7, -0.4)), None)[1, 1].real for task in range(WORKLOAD.test)]
    for name, dt in (("euler", 1 / 6), ("exact", None)):
        result = measured(WORKLOAD, name, dt, torch.float64)
        assert result["exact_infidelity"] == pytest.approx(1 - np.mean(overlaps), rel=1e-10)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_exact_states_are_physical_and_off_by_rounding(kind: str) -> None:
    error, negativity = deviations_of("exact", workload=WORKLOADS[kind](test=5), route="compiled")
    assert 0 < error < 1e-13 and negativity < 1e-13
    # The reference goes the same way, and has another rounding.
    assert 0 < deviations_of("exact", workload=WORKLOADS[kind](test=5), route="torch")[0] < 1e-13
    single = measured(WORKLOADS[kind](test=5), "exact", None, torch.float32)
    assert 1e-9 < single["simulator_error"] < 1e-4


def test_the_loop_and_the_batch_are_equally_wrong_and_errors_fall_by_their_order() -> None:
    assert deviations_of("literal", 1 / 12) == pytest.approx(deviations_of("rk4", 1 / 12), rel=1e-9)
    for name, order in (("rk4", 4), ("euler", 1)):
        coarse, fine = (deviations_of(name, 1 / steps)[0] for steps in (60, 120))
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.3)


def test_states_that_are_not_numbers_have_no_error_and_others_that_of_their_angle() -> None:
    class Long(QubitRelaxation, frozen=True, kw_only=True):
        amplitude: ClassVar[float] = 1e8

    class Longest(QubitRelaxation, frozen=True, kw_only=True):
        amplitude: ClassVar[float] = 1e16

    assert 1e-10 < deviations_of("exact", workload=Long(test=2))[0] < 1e-6
    workload = Longest(test=2)
    assert all(math.isnan(value) for value in deviations_of("exact", workload=workload, strict=False))
