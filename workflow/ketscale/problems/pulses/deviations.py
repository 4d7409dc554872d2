"""How far an integrator is from exact columns, and from columns of norm 1, under the pulses that training begins with."""

from __future__ import annotations

import torch

from ketscale.engines.pulses import Integrator, integrator
from ketscale.problems.pulses.driven import DrivenColumns
from ketscale.problems.pulses.metrics import DEVIATIONS

# What is compared with: an integrator of order 4 for any couplings, with so short steps, ns.
REFERENCE, SHORTEST = "suzuki4", 0.005
# Columns that are compared, from the first to the last.
COLUMNS = 4


@torch.no_grad()
def deviations(problem: DrivenColumns, split: str) -> dict[str, float | None]:
    """The metrics `DEVIATIONS` of the problem's integrator; None for other splits, since training depends on neither.

    simulator_error: the largest norm of a column's difference from an exact one. norm_error: | |psi| - 1 |.
    """
    if split != "test":
        return dict.fromkeys((metric.name for metric in DEVIATIONS), None)
    pulses = problem.model.usual()
    lattice, frame = problem.begin()
    columns = problem.get_buffer("columns")
    chosen = torch.linspace(0, len(columns) - 1, min(COLUMNS, len(columns))).round().long()
    initial = frame.states[columns[chosen.to(columns.device)]]
    duration = pulses.duration
    parts = problem.model.divisions
    # At least four for each of the integrator's own, of which some have a tenth of the reference's error.
    steps = max(parts * round(float(duration) / (SHORTEST * parts)), 4 * problem.steps(duration))

    def final(by: Integrator) -> torch.Tensor:
        return by.evolve(lattice, pulses.sample(by.times(duration)), duration, initial)

    found = final(problem.integrator(duration))
    error = (found - final(integrator(REFERENCE, steps))).norm(dim=1).max()
    return {"simulator_error": float(error), "norm_error": float((found.norm(dim=1) - 1).abs().max())}
