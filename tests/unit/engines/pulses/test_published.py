"""The published splitting is that of every term by itself: dense exponentials of the terms, in their order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch

from ketscale.engines.dynamics.methods import Route
from ketscale.engines.pulses import Lattice, integrator
from tests.unit.engines.pulses.test_integrators import hermitian, normal

DURATION, STEPS = 1.7, 3


def lattice(sites: int, levels: int) -> Lattice:
    """A chain with a drive on each site."""
    pairs = tuple(pairwise(range(sites)))
    energies, places = normal(sites, levels, seed=1).real, tuple(range(sites))
    couplings, drives = (
        hermitian(len(pairs), levels**2, levels**2, seed=2),
        hermitian(sites, levels, levels, seed=3),
    )
    return Lattice(levels, sites, energies, pairs, couplings, places, drives)


def dense(order: int, given: Lattice, amplitudes: Any) -> Any:
    """The unitary of all steps."""

    def exponential(operator: torch.Tensor, sites: tuple[int, ...], duration: float) -> Any:
        return scipy.linalg.expm(-1j * duration * given.embedded(operator, sites).detach().numpy())

    circuits = [(torch.diag(each) + 0j, (site,)) for site, each in enumerate(given.energies)]
    couplings = list(zip(given.couplings, given.pairs, strict=True))
    total, step = np.eye(given.dimension, dtype=complex), DURATION / STEPS
    for (row,) in amplitudes:
        drives = [
            (float(f) * drive, (site,)) for site, (f, drive) in enumerate(zip(row, given.drives, strict=True))
        ]
        terms = [*circuits, *couplings, *drives]
        acting = [(*term, step / 2) for term in (*terms, *reversed(terms))]
        if order == 1:
            acting = [(*term, step) for term in reversed(terms)]
        for term in acting:
            total = exponential(*term) @ total
    return total


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("sites", "levels"), [(4, 2), (2, 3), (3, 3)])
@pytest.mark.parametrize("route", ["compiled", "torch"])
def test_every_term_is_by_itself_in_its_order(order: int, sites: int, levels: int, route: Route) -> None:
    given = lattice(sites, levels)
    made = integrator(f"published{order}", STEPS, route)
    amplitudes = normal(STEPS, 1, sites, seed=4).real
    columns = torch.eye(given.dimension, dtype=torch.complex128)
    final = made.evolve(given, amplitudes, DURATION, columns)
    np.testing.assert_allclose(final.T, dense(order, given, amplitudes), rtol=0, atol=1e-13)
