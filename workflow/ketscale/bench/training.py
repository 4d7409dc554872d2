"""Whole training steps of models, as subjects: what a user pays, forward, backward and optimiser."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch
from torch import nn

from ketscale.engines.circuits.factory import build_simulator
from ketscale.measure import spans
from ketscale.measure.spans import span
from ketscale.problems import models as catalogue
from ketscale.problems.dropout import keyed, name_dropouts
from ketscale.problems.sentences.likelihood import build_likelihood
from ketscale.problems.sentences.next_word import NextWord, transitions
from ketscale.problems.sentences.sentences import BUILT_IN, Prepared
from ketscale.problems.sentences.transformer import SuperpositionTransformer
from ketscale.training.optimiser import Adam, GradientDescent

CHANNELS, STEPS, CLASSES, LAYERS = 64, 249, 2, 2
DROPOUT = 0.1
LEARNING_RATE, CLIP_NORM = 1e-3, 1.0
SEED = 20240229

_FUSED = {"device": "fused", "gradient": "adjoint", "batching": "broadcast", "placement": "model"}
_DEFAULT = {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast", "placement": "model"}
# Two factors: which circuits (those published, or those that exact reductions leave), and which simulator.
# `literal` is the baseline: the published circuits as the public code runs them, all rows in one call.
ARMS: dict[str, tuple[dict[str, str], bool]] = {
    "fused": (_FUSED, False),
    "literal-fused": (_FUSED, True),
    "default.qubit": (_DEFAULT, False),
    "literal": (_DEFAULT, True),
}
# Ways to evaluate the model on sentences; its `literal` is the published Qiskit circuit, rebuilt in every evaluation.
_CLOSED = {"device": "closed-form", "gradient": "backprop", "batching": "broadcast", "placement": "model"}
_LITERAL = {"device": "literal", "gradient": "parameter-shift", "batching": "loop", "placement": "model"}
LIKELIHOODS: dict[str, dict[str, str]] = {
    "fused": _FUSED,
    "closed-form": _CLOSED,
    "closed-form-shift": {**_CLOSED, "gradient": "parameter-shift"},
    "literal-bound": {**_LITERAL, "device": "literal-bound"},
    "literal": _LITERAL,
}
SENTENCES = len(BUILT_IN)
# A literal step is 97 equal evaluations of each sentence, of seconds each: one of each is timed, and the step projected.
PROJECTED = {"literal": 97, "literal-bound": 97}
# Models whose published circuits differ from what is left of them; of the others both are the same.
REDUCED = ("hydra", "hydra_hybrid", "mamba_hybrid", "mamba_hybrid_lite")


class Cell(NamedTuple):
    """One model and size, to be timed with every simulator; 0 qubits for a classical model, 8 sentences as a batch."""

    model: str
    qubits: int
    batch: int

    def __str__(self) -> str:
        return f"{self.model} {self.qubits}q x {self.batch}"


def arms(model: str) -> tuple[str, ...]:
    """The simulators that a model is timed with."""
    entry = catalogue.MODELS[model]
    if entry.takes == "sentences":
        return tuple(LIKELIHOODS)
    if not entry.quantum:
        return ("none",)
    return tuple(ARMS) if model in REDUCED else ("fused", "literal")


def evaluations(cell: Cell, arm: str) -> int:
    """How many times as long as a timed call a whole training step is; above 1 its times are projections."""
    return PROJECTED.get(arm, 1) if catalogue.MODELS[cell.model].takes == "sentences" else 1


def step(cell: Cell, arm: str) -> Callable[[], torch.Tensor]:
    """A training step on fixed random trials, or on the built-in sentences; it gives the loss.

    The same weights and data for every arm, so that their first losses can be compared.
    """
    torch.manual_seed(SEED)
    if catalogue.MODELS[cell.model].takes == "sentences":
        return _sentences(arm)
    x = 0.03 * torch.randn(cell.batch, CHANNELS, STEPS)
    labels = torch.arange(cell.batch) % CLASSES
    arguments: dict[str, object] = {"inputs": (CHANNELS, STEPS), "outputs": CLASSES, "dropout": DROPOUT}
    if arm != "none":
        settings, literal = ARMS[arm]
        simulator = build_simulator(arm, settings, torch.device("cpu"))
        arguments |= {"qubits": cell.qubits, "layers": LAYERS, "simulator": simulator}
        if literal and cell.model in REDUCED:
            arguments["literal"] = True
    model = catalogue.build(cell.model, **arguments).train()
    name_dropouts(model)
    parameters = list(model.parameters())
    optimiser = Adam(parameters, LEARNING_RATE, 0.0)
    ids, number = torch.arange(cell.batch), itertools.count()

    def call() -> torch.Tensor:
        optimiser.clear_gradients()
        with span("classical.forward"), keyed(SEED, next(number), ids):
            loss = nn.functional.cross_entropy(model(x), labels)
        with span("classical.backward"):
            loss.backward()
        with span("optimiser"):
            nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
            optimiser.step()
        return loss.detach()

    return call


def _sentences(arm: str) -> Callable[[], torch.Tensor]:
    """An epoch of gradient descent on the eight sentences at once, one layer, fp64; of projected arms the loss alone."""
    data = Prepared.of(BUILT_IN, SEED)
    likelihood = build_likelihood(arm, LIKELIHOODS[arm], 1, transitions(data), torch.device("cpu"))
    problem = NextWord(SuperpositionTransformer(1), likelihood, data).double()
    optimiser = GradientDescent(list(problem.parameters()), 0.01, 0.0)
    everything = torch.arange(problem.splits["train"])

    def loss_alone() -> torch.Tensor:
        with torch.no_grad():
            return problem.combine(problem(everything, 0), len(everything))

    if arm in PROJECTED:
        return loss_alone

    def call() -> torch.Tensor:
        optimiser.clear_gradients()
        with span("classical.forward"):
            loss = problem.combine(problem(everything, 0), len(everything))
        with span("classical.backward"):
            loss.backward()
        with span("optimiser"):
            optimiser.step()
        return loss.detach()

    return call


def spans_of(call: Callable[[], torch.Tensor], repeats: int) -> dict[str, float]:
    """Exclusive seconds of a call by span, medians of several."""
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        recorder = spans.Recorder(torch.device("cpu"))
        with spans.recording(recorder):
            call()
        for name, seconds in recorder.exclusive_s.items():
            found.setdefault(name, []).append(seconds)
    return {name: median(seconds) for name, seconds in found.items()}
