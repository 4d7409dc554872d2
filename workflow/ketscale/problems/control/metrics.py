"""The metrics of a split's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ketscale.config import Metric

if TYPE_CHECKING:
    import torch

    from ketscale.problems.control.objective import Objective
    from ketscale.problems.control.workload import Rates

# Numbers of adaptation steps whose infidelity is always measured.
SHOWN = (0, 1, 5, 20)

# The deviations of the run's propagator; see `deviations`.
DEVIATIONS = (
    Metric("exact_infidelity", "infidelity of the pulses by exact propagation", "", "down"),
    Metric(
        "simulator_error", "largest error of a random pulse's fidelity", "", "down", least=0, about="error"
    ),
    Metric("negativity", "negativity of a random pulse's state", "", "down", least=0, about="unphysical"),
)

METRICS = (
    Metric("infidelity", "infidelity", "", "down", chance="data"),
    Metric("worst_infidelity", "largest infidelity of a task", "", "down"),
    *(
        Metric(f"infidelity_{steps}", f"infidelity after {steps} adaptation steps", "", "down", after=steps)
        for steps in SHOWN
    ),
    Metric("leakage", "population above the qubit's levels", "", "down"),
    # These say how much the tasks differ.
    Metric("lowest_rate", "lowest rate of a jump", "1 / time", None),
    Metric("highest_rate", "highest rate of a jump", "1 / time", None),
    Metric("pulse_spread", "spread of the tasks' pulses", "amplitudes", None),
    Metric("exchanged_infidelity", "infidelity with another task's pulse", "", None),
    *DEVIATIONS,
)


def measures(objective: Objective, final: torch.Tensor) -> dict[str, Any]:
    """The loss and the mean infidelity 1 - Tr(rho sigma) of tasks with these overlaps (n,)."""
    return {"loss": float(objective.loss(final).mean()), "infidelity": float((1 - final).mean())}


def all_measures(
    objective: Objective, final: torch.Tensor, course: torch.Tensor, pulses: torch.Tensor, environment: Rates
) -> dict[str, Any]:
    """All metrics of tasks. The last two are None for a single task; leakage is None without levels to leak into.

    leakage: the mean population of levels above the qubit's, after the pulses.
    lowest_rate, highest_rate: the extremes over all jumps and environments, 1 / time. pulse_spread: the root mean square
    difference of the pulses' amplitudes from those of their mean pulse, in units of the workload's `amplitude`; pulses
    from starts of their own differ even if one is best for all. exchanged_infidelity: the mean infidelity of each
    task's pulse in the next task's environment (the last one's in the first's). If it equals the infidelity, the
    tasks share one best pulse.

    Args:
        objective: judges the pulses.
        final: overlaps (n,) of the pulses.
        course: overlaps (n, steps + 1) after 0, 1, ... steps of adaptation; (n, 0) without adaptation.
        pulses: (n, segments, controls), after the last step.
        environment: the environments in which the tasks are judged.
    """
    found = measures(objective, final)
    found["worst_infidelity"] = float((1 - final).max())
    for steps in SHOWN:
        defined = course.shape[1] > steps
        found[f"infidelity_{steps}"] = float((1 - course[:, steps]).mean()) if defined else None
    leakage = objective.leakage(pulses, environment)
    found["leakage"] = None if leakage is None else float(leakage.mean())
    found["lowest_rate"], found["highest_rate"] = (float(end) for end in environment.rates.aminmax())
    alone = len(final) == 1
    apart = (pulses - pulses.mean(0)) / objective.workload.amplitude
    found["pulse_spread"] = None if alone else float(apart.square().mean().sqrt())
    exchanged = 1 - objective.overlaps(pulses.roll(1, 0), environment)
    found["exchanged_infidelity"] = None if alone else float(exchanged.mean())
    return {**found, "chance": objective.chance, "count": len(final)}
