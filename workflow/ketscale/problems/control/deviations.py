"""The deviations of a propagator from exact results and from physical states, on the test tasks."""

from __future__ import annotations

import math

import torch

from ketscale.dynamics import fidelity, violations
from ketscale.engines import randomness
from ketscale.engines.dynamics.factory import propagator
from ketscale.engines.dynamics.propagators import Propagator
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.problems.control.metrics import DEVIATIONS
from ketscale.problems.control.objective import Objective
from ketscale.problems.control.tasks import SPLIT_KEYS, Distribution
from ketscale.problems.control.workload import Rates

PULSES = randomness.RandomStream("control.random_pulses")


def deviations(
    objective: Objective, pulses: torch.Tensor, environment: Rates, like: torch.Tensor, split: str
) -> dict[str, float | None]:
    """The metrics `DEVIATIONS` of the objective's propagator, in the precision and on the device of `like`.

    exact_infidelity is the mean infidelity of the tasks' own pulses (n, segments, controls), in the environments in which
    they are judged. For the other two, each test task has one pulse, drawn by the workload's seed and the task's number and
    uniform within the amplitude. simulator_error is the largest |Tr(rho sigma) - exact| of a task, and negativity that of
    the least physical state; see `violations`. Exact is `exact` in fp64 by torch's operators, so that for compiled exact
    code simulator_error is the rounding. All are None for other splits, since training depends on none, and NaN if a state
    has NaN.
    """
    if split != "test":
        return dict.fromkeys((metric.name for metric in DEVIATIONS), None)
    workload, system = objective.workload, objective.system
    target = system.targets[workload.target]
    numbers = torch.arange(workload.test, device=like.device)
    drawn = randomness.uniform(PULSES.key(workload.seed, 0, SPLIT_KEYS[split]), numbers, pulses[0].numel())
    controls = (workload.amplitude * (2 * drawn - 1)).unflatten(1, pulses.shape[1:])
    exact = propagator("exact", route="torch", strict=False)

    def states(by: Propagator, dtype: torch.dtype) -> torch.Tensor:
        environment = Distribution(workload).fixed(split, numbers, dtype).query
        return by.state(system, Tasks(controls.to(dtype), workload.duration, *environment))

    with torch.no_grad():
        found = states(objective.propagator, like.dtype)
        reference = fidelity(states(exact, torch.float64), target)
        error = float((fidelity(found, target) - reference).abs().max())
        given = Rates(*(each.to(like.device, torch.float64) for each in environment))
        overlaps = Objective(workload, exact).overlaps(pulses.double(), given)
    # Computing eigenvalues of NaN raises an error.
    negativity = float(violations(found).negativity.max()) if math.isfinite(error) else error
    return {
        "exact_infidelity": float((1 - overlaps).mean()),
        "simulator_error": error,
        "negativity": negativity,
    }
