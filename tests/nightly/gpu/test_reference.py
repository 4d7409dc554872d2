"""The dense reference against PennyLane's default.qubit, which a machine with a GPU may not have."""

from __future__ import annotations

import pytest
import torch

from tests.nightly.gpu import reference
from tests.nightly.gpu.circuits import random_angles, random_circuit, random_states, random_words


@pytest.mark.parametrize("qubits", [1, 2, 3, 5])
def test_the_reference_agrees_with_default_qubit(qubits: int) -> None:
    pytest.importorskip("pennylane")
    from tests.unit.engines.circuits.test_simulators import simulator

    circuit, words, angles = random_circuit(qubits, qubits), random_words(qubits, qubits), random_angles(4)
    leaves = [t.requires_grad_() for t in angles]
    initial = random_states(4, qubits)
    expected = simulator("default.qubit")
    pairs = [
        (reference.expval(circuit, *angles, words), expected.expval(circuit, angles, words)),
        (reference.state(circuit, *angles, initial), expected.state(circuit, angles, initial)),
    ]
    for actual, others in pairs:
        torch.testing.assert_close(actual, others, atol=1e-12, rtol=0)
        pull = torch.randn(actual.shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(2))
        by = [
            torch.autograd.grad((values * pull).real.sum(), leaves, allow_unused=True, materialize_grads=True)
            for values in (actual, others)
        ]
        torch.testing.assert_close(*by, atol=1e-11, rtol=0)
