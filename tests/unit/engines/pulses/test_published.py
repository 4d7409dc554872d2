"""The published splitting is that of every term by itself: dense exponentials of the terms, in their order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch

from ketscale.engines.dynamics.methods import Route
from ketscale.engines.dynamics.system import System
from ketscale.engines.pulses.integrators import integrator
from tests.unit.engines.pulses.test_integrators import lattice, normal

DURATION, STEPS = 1.7, 3


def dense(order: int, given: System, amplitudes: Any) -> Any:
    """The unitary of all steps."""

    def exponential(operator: Any, duration: float) -> Any:
        return scipy.linalg.expm(-1j * duration * operator)

    total, step = np.eye(given.dimension, dtype=complex), DURATION / STEPS
    for (row,) in amplitudes:
        drives = [float(f) * drive for f, drive in zip(row, given.controls.values(), strict=True)]
        terms = [*given.drift.values(), *drives]
        acting = [(term, step / 2) for term in (*terms, *reversed(terms))]
        if order == 1:
            acting = [(term, step) for term in reversed(terms)]
        for term in acting:
            total = exponential(*term) @ total
    return total


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("sites", "levels"), [(4, 2), (2, 3), (3, 3)])
@pytest.mark.parametrize("route", ["compiled", "torch"])
def test_every_term_is_by_itself_in_its_order(order: int, sites: int, levels: int, route: Route) -> None:
    given = lattice(sites, levels, tuple(pairwise(range(sites))), tuple(range(sites)))
    made = integrator(f"published{order}", STEPS, route)
    amplitudes = normal(STEPS, 1, sites, seed=4).real
    columns = torch.eye(given.dimension, dtype=torch.complex128)
    final = made.evolve(given, amplitudes, DURATION, columns)
    np.testing.assert_allclose(final, dense(order, given, amplitudes), rtol=0, atol=1e-13)
