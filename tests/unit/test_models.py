"""The models have the published shapes and parameter counts and work in a notebook's three lines."""

import pytest
import torch

from ketscale.engines.circuits.create import default
from ketscale.problems import models as catalogue
from ketscale.problems.images.mlp import MLP
from ketscale.problems.images.vqc import VQC, head


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_vqc_has_the_published_parameter_counts():
    model = VQC(qubits=4, layers=3)
    assert count(model.head) == 69_924
    assert model.weights.numel() == 12
    assert count(model) == 70_186


def test_control_is_of_the_same_size_without_a_circuit():
    assert count(MLP()) == 70_190
    assert not hasattr(MLP(), "circuit")


@pytest.mark.parametrize("qubits, layers", [(1, 1), (2, 1), (6, 2)])
def test_vqc_at_other_sizes(qubits, layers):
    model = VQC(qubits=qubits, layers=layers, inputs=20, outputs=3)
    logits = model(torch.randn(5, 20))
    assert logits.shape == (5, 3)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_circuit_weights_start_small():
    torch.manual_seed(0)
    assert 0.005 < VQC(qubits=8, layers=20).weights.std() < 0.015


def test_angles_lie_within_one_radian():
    assert head(10, 4, 0.0)(100 * torch.randn(50, 10)).abs().max() <= 1


def test_every_entry_of_the_catalogue_can_be_built():
    for name, entry in catalogue.MODELS.items():
        circuit = {"qubits": 2, "layers": 1, "simulator": default()} if entry.quantum else {}
        inputs = (4, 6) if entry.takes == "series" else 6
        if entry.takes == "sentences":
            assert list(catalogue.build(name, layers=1).parameters())
            continue
        model = catalogue.build(name, inputs=inputs, outputs=2, dropout=0.1, **circuit)
        shape = inputs if isinstance(inputs, tuple) else (inputs,)
        assert model(torch.randn(3, *shape)).shape == (3, 2), name
        assert any(hasattr(module, "simulator") for module in model.modules()) == entry.quantum
