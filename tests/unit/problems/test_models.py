"""The models have the published shapes and parameter counts and work in a notebook's three lines."""

import inspect
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import steps
from ketscale.layers.dropout import SampleDropout
from ketscale.problems import library, models
from ketscale.problems.eeg.hydra import Hydra, HydraHybrid
from ketscale.problems.eeg.mamba import Mamba, MambaHybrid, MambaHybridLite, MambaLite
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba
from ketscale.problems.problem import convert
from ketscale.problems.registry import FAMILIES, read_config
from ketscale.problems.vectors.mlp import MLP
from ketscale.problems.vectors.vqc import VQC, head
from tests.process.parallel.worlds import ROOT

CLASSICAL = (MLP, ClassicalMamba, ClassicalHydra)
MODELS = (VQC, Hydra, HydraHybrid, Mamba, MambaHybrid, MambaLite, MambaHybridLite, *CLASSICAL)


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_vqc_has_the_published_parameter_counts():
    model = VQC(qubits=4, layers=3)
    assert count(model.head) == 69_924
    assert model.weights.numel() == 12
    assert count(model) == 70_186
    assert count(MLP()) == 70_190


def test_circuit_weights_start_small_and_angles_lie_within_one_radian():
    torch.manual_seed(0)
    assert 0.005 < VQC(qubits=8, layers=20).weights.std() < 0.015
    assert head(10, 4, 0.0)(100 * torch.randn(50, 10)).abs().max() <= 1


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_works_as_it_comes_on_inputs_of_its_shape_alone(kind):
    image, classical = kind in (VQC, MLP), kind in CLASSICAL
    model, sample = kind(), (512,) if image else (64, 249)
    logits = model(torch.randn(2, *sample))
    assert logits.shape == (2, 10 if image else 2) and logits.isfinite().all()
    assert any(hasattr(part, "simulator") for part in model.modules()) != classical
    assert (0.2 if image else 0.1) in {p.p for p in model.modules() if isinstance(p, SampleDropout)}
    # Ranks share a split's samples; if there are fewer samples than ranks, some have none.
    assert model(torch.zeros(0, *sample)).shape == (0, 10 if image else 2)


def test_a_simulator_may_be_named():
    x = torch.randn(2, 3)
    default = VQC(qubits=2, layers=1, inputs=3, dropout=0.0)
    for name in ("fused", "default.qubit"):
        other = VQC(qubits=2, layers=1, inputs=3, dropout=0.0, simulator=name)
        other.load_state_dict(default.state_dict())
        torch.testing.assert_close(other(x), default(x))


KINDS = [(name, kind) for family in FAMILIES.values() for name, kind in family.models.items()]


@pytest.mark.parametrize("name, settings", KINDS)
def test_every_kind_of_model_can_be_built_by_name(name, settings):
    model = library.construct(name)
    # A machine has its numbers after the fit; others know their shape before, and what is counted is no parameter.
    machine = settings.fitted and name not in ("linear", "csp")
    assert (sum(parameter.numel() for parameter in model.parameters()) > 0) != machine
    takes = "simulator" in inspect.signature(type(model)).parameters
    assert any(hasattr(module, "simulator") for module in model.modules()) == takes
    assert not (takes and settings.classical)


class Phases(nn.Module):
    """A model with complex weights, and a complex constant that is not saved."""

    def __init__(self, qubits: int = 2) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(qubits, dtype=torch.complex64))
        self.register_buffer("turn", torch.tensor([1j]), persistent=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_complex_weights_and_constants_come_back_whole(dtype, monkeypatch, tmp_path):
    monkeypatch.setattr(models, "implementation", lambda kind: Phases)
    config = read_config(ROOT / "config.yaml")
    settings = config.settings(config.runs[0])
    trained = convert(Phases(settings.sizes["qubits"]), torch.device("cpu"), dtype)
    (tmp_path / models.WEIGHTS).write_bytes(
        models.saved(settings, SimpleNamespace(model=trained, arguments={}, preprocessing=None))
    )
    loaded = library.load(tmp_path).module
    assert torch.equal(loaded.weights, trained.weights)
    assert loaded.turn.dtype == dtype.to_complex()
    assert loaded.turn.item() == 1j


# torch says that its normalisation has no fast path for half-precision inputs and single-precision weights.
@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("name", ["hydra", "mamba", "classical_hydra", *steps.ON_IMAGES])
def test_every_class_of_classifiers_trains_in_mixed_precision(name):
    """As `precision: amp` does on a GPU; bfloat16 has eight bits."""
    qubits, arm = (0, steps.CLASSICAL) if steps.MODELS[name].classical else (3, "fused")
    problem = steps.built(steps.ModelCase(name, qubits, 6), arm, steps.CPU)
    samples = torch.arange(6)
    exact = problem.combine(problem(samples, 0), 6).item()
    with torch.autocast("cpu", torch.bfloat16):
        sums = problem(samples, 0)
    loss = problem.combine(sums, 6)
    loss.backward()
    assert loss.item() == pytest.approx(exact, rel=0.02)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in problem.parameters())
