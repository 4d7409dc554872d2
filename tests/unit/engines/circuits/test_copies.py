"""Models and simulators can be copied, pickled, saved whole and averaged; a copy computes the same to the last bit."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ketscale.config.simulators.circuits import CircuitSimulator
from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.registry import SIMULATORS as REGISTERED
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.wrapper import Looped
from ketscale.problems.eeg.hydra import Hydra, HydraHybrid
from ketscale.problems.eeg.mamba import Mamba, MambaHybrid, MambaHybridLite, MambaLite
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba
from ketscale.problems.sentences.likelihood import Likelihood
from ketscale.problems.sentences.next_word import build_likelihood
from ketscale.problems.sentences.settings import LikelihoodSimulator
from ketscale.problems.sentences.transformer import SuperpositionTransformer, Transitions
from ketscale.problems.vectors.mlp import MLP
from ketscale.problems.vectors.vqc import VQC
from ketscale.simulators.factory import named_simulator
from ketscale.simulators.placement import Placed
from ketscale.simulators.spanned import Spanned

CPU = torch.device("cpu")


def saved(thing: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "copied": copy.deepcopy,
    "pickled": lambda thing: pickle.loads(pickle.dumps(thing)),
    "saved": saved,
}

# Small: what is copied does not depend on sizes.
FEATURES, SERIES = 8, (4, 9)


def small(kind: Any, **arguments: Any) -> Callable[[], nn.Module]:
    inputs = FEATURES if kind in (VQC, MLP) else SERIES
    sizes = {"qubits": 2, "layers": 1} if kind in QUANTUM else {}
    return partial(kind, inputs=inputs, **sizes, **arguments)


QUANTUM: tuple[Any, ...] = (VQC, Hydra, HydraHybrid, Mamba, MambaHybrid, MambaLite, MambaHybridLite)
MODELS: dict[str, Callable[[], nn.Module]] = {
    **{kind.__name__: small(kind) for kind in (*QUANTUM, MLP, ClassicalMamba, ClassicalHydra)},
    **{f"literal {kind.__name__}": small(kind, literal=True) for kind in (Hydra, MambaHybrid)},
    **{f"{kind.__name__} by PennyLane": small(kind, simulator="default.qubit") for kind in (VQC, MambaLite)},
}


def inputs_of(model: nn.Module) -> torch.Tensor:
    shape = (FEATURES,) if isinstance(model, (VQC, MLP)) else SERIES
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


def numbers(model: nn.Module) -> list[torch.Tensor]:
    """Logits and all gradients, with dropout off."""
    logits = model.eval()(inputs_of(model))
    return [logits.detach(), *torch.autograd.grad(logits.exp().sum(), list(model.parameters()))]


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_model_that_was_used_is_copied_whole(make: Callable[[], nn.Module]) -> None:
    model = make()
    expected = numbers(model)
    for name, way in WAYS.items():
        other = way(model)
        assert same(numbers(other), expected), name
        with torch.no_grad():
            next(iter(other.parameters())).zero_()
    assert same(numbers(model), expected), "a copy shares the weights"


@pytest.mark.parametrize("make", [MODELS["VQC"], MODELS["Mamba"]])
def test_a_model_is_averaged(make: Callable[[], nn.Module]) -> None:
    model = make()
    numbers(model)
    averaged, before = AveragedModel(model), [p.clone() for p in model.parameters()]
    averaged.update_parameters(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    averaged.update_parameters(model)
    for mean, first in zip(averaged.module.parameters(), before, strict=True):
        torch.testing.assert_close(mean, first + 0.5)
    assert averaged(inputs_of(model)).isfinite().all()


SIMULATORS: dict[str, Callable[[], Simulator]] = {
    **{name: partial(named_simulator, name) for name in REGISTERED if name != "lightning.gpu"},
    "fused by its matrix": lambda: Fused("matrix"),
    "wrapped": lambda: Placed(Spanned(Looped(Fused("sweep"))), CPU),
}


@pytest.mark.parametrize("make", SIMULATORS.values(), ids=SIMULATORS)
def test_a_simulator_that_was_used_is_copied_with_its_settings(make: Callable[[], Simulator]) -> None:
    circuit = vqc_ansatz(2, 1)
    generator = torch.Generator().manual_seed(1)
    angles = Angles(*(torch.randn(shape, generator=generator).requires_grad_() for shape in ((5, 2), (2,))))

    def evaluated(simulator: Simulator) -> list[torch.Tensor]:
        values = simulator.expval(circuit, angles, ("ZI", "XY"))
        return [values.detach(), *torch.autograd.grad(values.exp().sum(), list(angles))]

    simulator = make()
    expected = evaluated(simulator)
    for way in WAYS.values():
        other = way(simulator)
        assert other is not simulator and same(evaluated(other), expected)
        if isinstance(simulator, Fused):
            assert other.route == simulator.route and not other.choices


@pytest.mark.parametrize(
    "settings",
    [
        CircuitSimulator.usual("fused"),
        LikelihoodSimulator(device="closed-form", gradient="backprop", batching="broadcast"),
        LikelihoodSimulator(device="literal", gradient="parameter-shift", batching="loop"),
    ],
    ids=lambda settings: f"{settings.device}-{settings.gradient}",
)
def test_a_likelihood_of_the_transformer_is_copied(settings: CircuitSimulator | LikelihoodSimulator) -> None:
    vectors = torch.nn.functional.normalize(torch.arange(1.0, 13).view(3, 4), dim=1)
    likelihood = build_likelihood("test", settings, 1, Transitions.of([vectors]), CPU).double()
    model = SuperpositionTransformer().double()

    def evaluated(likelihood: Likelihood, model: SuperpositionTransformer) -> list[torch.Tensor]:
        # A few tasks, as the literal circuit takes long.
        likelihood.tasks = (5, 96) if settings.has_tasks else (0, 1)
        losses = likelihood.losses(model.weights, torch.tensor([0]))
        return [losses.detach(), *torch.autograd.grad(losses.sum(), list(model.parameters()))]

    expected = evaluated(likelihood, model)
    for way in WAYS.values():
        assert same(evaluated(way(likelihood), way(model)), expected)


def test_a_circuit_is_pickled_without_its_hash() -> None:
    """Texts have another hash in another process."""
    circuit = vqc_ansatz(3, 2)
    hash(circuit)
    assert b"_hash" not in pickle.dumps(circuit) and {pickle.loads(pickle.dumps(circuit)), circuit} == {
        circuit
    }
