"""How far an integrator is from exact columns, and from columns of norm 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ketscale.engines.dynamics.settings import MOST_STEPS
from ketscale.engines.pulses import Lattice, Pulses, evolve, integrator
from ketscale.engines.pulses.integrators import step_count

# What is compared with: an integrator of order 4 for any couplings, with so short steps, ns.
REFERENCE, SHORTEST = "suzuki4", 0.005


def reference_step(pulses: Pulses) -> float:
    """The longest step of the reference, ns: `SHORTEST`, or of very long pulses as short a one as there may be."""
    return max(SHORTEST, float(pulses.duration) / MOST_STEPS)


@torch.no_grad()
def deviations(
    lattice: Lattice, pulses: Pulses, initial: torch.Tensor, method: Mapping[str, Any]
) -> dict[str, float]:
    """The metrics `DEVIATIONS` of an integrator, which `method` names to `evolve`, for initial states (columns, dimension).

    simulator_error: the largest norm of a column's difference from an exact one. norm_error: | |psi| - 1 |.
    """
    found = evolve(lattice, pulses, initial, **method)
    # At least four steps for each of the integrator's own, of which some have a tenth of the reference's error.
    steps = max(step_count(pulses, reference_step(pulses)), 4 * step_count(pulses, method["dt"]))
    reference = integrator(REFERENCE, steps)
    sampled = pulses.sample(reference.times(pulses.duration))
    exact = reference.evolve(lattice, sampled, pulses.duration, initial)
    return {
        "simulator_error": float((found - exact).norm(dim=1).max()),
        "norm_error": float((found.norm(dim=1) - 1).abs().max()),
    }
