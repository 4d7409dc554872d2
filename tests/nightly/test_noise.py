"""Three hundred noisy circuits of all gates and channels against default.mixed."""

from __future__ import annotations

import numpy as np
import pytest

from ketscale.engines.noise import density
from tests.unit.engines.noise import reference
from tests.unit.engines.noise.test_density import drawn


@pytest.mark.parametrize("seed", range(1000, 1300))
def test_density_matrices_are_those_of_default_mixed(seed: int) -> None:
    generator = np.random.default_rng(seed)
    qubits = int(generator.integers(1, 6))
    circuit = reference.random_circuit(generator, qubits, int(generator.integers(3, 40)))
    angles = drawn(circuit, 3, seed)
    rows, weights = angles.inputs.detach().numpy(), angles.weights.detach().numpy()
    expected = [reference.density(circuit, row, weights) for row in rows]
    np.testing.assert_allclose(density.density_matrix(circuit, angles).detach(), expected, atol=1e-12)
