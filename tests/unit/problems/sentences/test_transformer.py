"""The superposition transformer: three ways to evaluate P against PennyLane, and three gradients against each other."""

from __future__ import annotations

import math

import numpy as np
import pennylane as qml
import pytest
import torch
from msgspec import structs

from ketscale.config import Simulator as SimulatorSettings
from ketscale.config.circuits import CircuitSimulator
from ketscale.errors import UserError
from ketscale.problems.sentences.likelihood import Likelihood
from ketscale.problems.sentences.next_word import build_likelihood
from ketscale.problems.sentences.sentences import BUILT_IN, embed
from ketscale.problems.sentences.specification import LikelihoodSimulator
from ketscale.problems.sentences.transformer import (
    TINY,
    Transitions,
    loss,
    pair_unitary,
)

CPU = torch.device("cpu")
FUSED = CircuitSimulator.of_name("fused")
CLOSED = LikelihoodSimulator(device="closed-form", gradient="backprop", batching="broadcast")
SHIFTED = structs.replace(CLOSED, gradient="parameter-shift")
LITERAL = LikelihoodSimulator(device="literal", gradient="parameter-shift", batching="loop")
BOUND = structs.replace(LITERAL, device="literal-bound")


def vectors(text: str) -> torch.Tensor:
    words = text.lower().split()
    return torch.from_numpy(embed(words, range(len(words)), seed=3))


def ragged() -> Transitions:
    texts = ("one two", "a b c d e f g", "the end is near", "x y z")
    return Transitions.of([vectors(text) for text in texts])


def angles(layers: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * math.pi * torch.rand(48 * layers, generator=generator, dtype=torch.float64)


def make(settings: SimulatorSettings, layers: int, transitions: Transitions) -> Likelihood:
    return build_likelihood("test", settings, layers, transitions, CPU).double()


def everything(transitions: Transitions) -> torch.Tensor:
    return torch.arange(len(transitions.counts))


def gradient_of(likelihood: Likelihood, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
    weights = weights.clone().requires_grad_()
    likelihood.losses(weights, sentences).sum().backward()
    assert weights.grad is not None
    return weights.grad


def pennylane_unitary(weights: torch.Tensor, layers: int) -> np.ndarray:
    """W (x) V gate by gate, as the published circuit: qubit q of theirs is wire 3 - q here."""
    values = iter(weights.tolist())

    def block(a: int, b: int) -> None:
        for _ in range(2):
            for qubit in (a, b):
                for gate in (qml.RX, qml.RY, qml.RZ):
                    gate(next(values), wires=3 - qubit)
            qml.CNOT(wires=[3 - a, 3 - b])

    def circuit() -> None:
        for first, second in ((0, 1), (2, 3)):
            for _ in range(layers):
                block(first, second)
                block(second, first)

    return qml.matrix(circuit, wire_order=range(4))()


def test_many_sets_of_angles_at_once() -> None:
    rows = torch.stack([angles(1, seed) for seed in range(3)])
    single = torch.stack([pair_unitary(row[:24], 1) for row in rows])
    assert torch.allclose(pair_unitary(rows[:, :24], 1), single, atol=1e-14, rtol=0)


def by_the_formula(transitions: Transitions, weights: torch.Tensor, layers: int) -> list[float]:
    unitary = pennylane_unitary(weights, layers)
    expected = []
    for sentence in range(len(transitions.counts)):
        psi, target = (part.numpy() for part in transitions.of_sentence(sentence))
        expected.append(abs(np.mean([t @ unitary @ p for t, p in zip(target, psi, strict=True)])) ** 2)
    return expected


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("settings", [CLOSED, SHIFTED, FUSED], ids=["closed", "shifted", "fused"])
def test_every_way_gives_the_formula(settings: SimulatorSettings, layers: int) -> None:
    transitions, weights = ragged(), angles(layers)
    result = make(settings, layers, transitions).probabilities(weights, everything(transitions))
    expected = by_the_formula(transitions, weights, layers)
    assert np.allclose(result.detach().numpy(), expected, atol=1e-10, rtol=0)


# Two transitions, and four, of which Qiskit takes seconds to synthesise the controlled unitaries.
@pytest.mark.parametrize(
    "settings, text, layers", [(BOUND, BUILT_IN[0], 2), (LITERAL, BUILT_IN[1], 1)], ids=["bound", "rebuilt"]
)
def test_the_literal_circuit_gives_the_formula(settings: SimulatorSettings, text: str, layers: int) -> None:
    transitions, weights = Transitions.of([vectors(text)]), angles(layers)
    result = make(settings, layers, transitions).probabilities(weights, everything(transitions))
    assert np.allclose(result.numpy(), by_the_formula(transitions, weights, layers), atol=1e-10, rtol=0)


def test_psi_and_target_are_what_the_words_say() -> None:
    words = vectors("the bird sings now").numpy()
    psi, target = Transitions.of([torch.from_numpy(words)]).of_sentence(0)
    raw = sum(np.kron(words[j], words[j]) for j in range(2))
    assert np.allclose(psi[1].numpy(), raw / np.linalg.norm(raw))
    assert np.allclose(target[1].numpy(), np.kron(words[1], words[2]))
    assert len(psi) == 3


@pytest.mark.parametrize("settings", [SHIFTED, FUSED], ids=["parameter-shift", "adjoint"])
def test_three_gradients_agree(settings: SimulatorSettings) -> None:
    transitions, weights = ragged(), angles(2)
    sentences = torch.tensor([2, 0, 3])
    by_autograd = gradient_of(make(CLOSED, 2, transitions), weights, sentences)
    assert torch.allclose(
        gradient_of(make(settings, 2, transitions), weights, sentences), by_autograd, atol=1e-8, rtol=0
    )
    step = 1e-6 * torch.eye(96, dtype=torch.float64)[17]
    closed = make(CLOSED, 2, transitions)
    ahead, behind = (closed.losses(weights + s * step, sentences).sum() for s in (1, -1))
    assert by_autograd[17] == pytest.approx(float(ahead - behind) / 2e-6, rel=1e-5)


def test_the_literal_circuit_has_the_same_gradient() -> None:
    transitions, weights = Transitions.of([vectors(BUILT_IN[0])]), angles(1)
    # Some of its 96 evaluations, the same of both: each builds or at least simulates a circuit.
    ways = [make(each, 1, transitions) for each in (BOUND, SHIFTED)]
    for way in ways:
        way.tasks = (3, 12)
    result, expected = (gradient_of(way, weights, everything(transitions)) for way in ways)
    assert torch.count_nonzero(result) == 4
    assert torch.allclose(result, expected, atol=1e-8, rtol=0)


def test_tasks_add_up_over_ranks() -> None:
    transitions, weights = ragged(), angles(1)
    sentences = torch.tensor([3, 1])
    single = make(SHIFTED, 1, transitions)
    expected = gradient_of(single, weights, sentences)
    losses, gradients = [], []
    for rank in range(3):
        shared = make(SHIFTED, 1, transitions)
        shared.tasks = (rank, 3)
        losses.append(shared.losses(weights, sentences))
        gradients.append(gradient_of(shared, weights, sentences))
    assert torch.allclose(torch.stack(losses).sum(0), single.losses(weights, sentences), atol=1e-12, rtol=0)
    assert torch.allclose(torch.stack(gradients).sum(0), expected, atol=1e-12, rtol=0)
    single.tasks = (199, 200)  # of which it has none
    assert not gradient_of(single, weights, sentences).any()


def test_the_literal_circuit_refuses_other_numbers_of_transitions() -> None:
    with pytest.raises(UserError, match="2, 4, 8 or 16 transitions, but sentence 2 has 4 words and so 3"):
        make(LITERAL, 1, Transitions.of([vectors("a b c"), vectors("a b c d")]))


def test_the_loss_is_finite_where_p_is_zero() -> None:
    assert float(loss(torch.tensor(0.0, dtype=torch.float64))) == pytest.approx(-math.log(TINY))
