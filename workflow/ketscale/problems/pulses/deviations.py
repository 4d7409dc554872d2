"""How far an integrator is from exact columns, and from columns of norm 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ketscale.engines.pulses import error_estimate, evolve
from ketscale.engines.pulses.integrators import step_count
from ketscale.problems.pulses.metrics import DEVIATIONS

if TYPE_CHECKING:
    from ketscale.problems.pulses.gate import GateProblem

# What is compared with: an integrator of order 4 for any couplings, with so short steps, ns.
REFERENCE, SHORTEST = "suzuki4", 0.005
# Columns that are compared, from the first to the last.
COLUMNS = 4


@torch.no_grad()
def deviations(problem: GateProblem, split: str) -> dict[str, float | None]:
    """The metrics `DEVIATIONS` of the problem's integrator, and `error_estimate`; None for other splits than the test.

    simulator_error: the largest norm of a column's difference from an exact one, under the pulses that training begins
    with. norm_error: | |psi| - 1 |. error_estimate: that from a column of twice the steps, under the trained pulses; None
    if there are no such pulses.
    """
    if split != "test":
        return dict.fromkeys(("error_estimate", *(metric.name for metric in DEVIATIONS)), None)
    columns = problem.get_buffer("columns")
    chosen = torch.linspace(0, len(columns) - 1, min(COLUMNS, len(columns))).round().long()
    chosen = columns[chosen.to(columns.device)]
    pulses, (lattice, frame) = problem.model.usual(), problem.begin()
    initial = frame.states.T[chosen]
    found = evolve(lattice, pulses, initial, **problem.method)
    # At least four steps for each of the integrator's own, of which some have a tenth of the reference's error.
    shortest = float(pulses.duration) / max(
        step_count(pulses, SHORTEST), 4 * step_count(pulses, problem.simulator.dt)
    )
    exact = evolve(lattice, pulses, initial, dt=shortest, method=REFERENCE)
    return {
        "simulator_error": float((found - exact).norm(dim=1).max()),
        "norm_error": float((found.norm(dim=1) - 1).abs().max()),
        "error_estimate": _estimated(problem, chosen),
    }


def _estimated(problem: GateProblem, columns: torch.Tensor) -> float | None:
    pulses, physics = problem.possible_pulses(), problem.possible_physics()
    if pulses is None or physics is None:
        return None
    lattice, frame = physics
    return float(error_estimate(lattice, pulses, frame.states.T[columns], **problem.method).max())
