"""Builds the problem of a run from its settings and its sentences."""

from __future__ import annotations

import torch

from ketscale.config import Settings, checked
from ketscale.config import Simulator as SimulatorSettings
from ketscale.engines.circuits.factory import build_simulator
from ketscale.engines.circuits.settings import CircuitSimulator
from ketscale.problems.sentences.likelihood import ClosedForm, Likelihood, ShiftedClosedForm, Simulated
from ketscale.problems.sentences.next_word import NextWord, transitions
from ketscale.problems.sentences.sentences import Prepared
from ketscale.problems.sentences.settings import LikelihoodSimulator
from ketscale.problems.sentences.transformer import SuperpositionTransformer
from ketscale.problems.sentences.transitions import Transitions


def problem(settings: Settings, prepared: Prepared, device: torch.device) -> NextWord:
    """The prediction of next words; the simulator says how its probabilities are evaluated.

    Raises:
        UserError: as for `build_likelihood`.
    """
    assert settings.simulator is not None
    layers = settings.sizes["layers"]
    likelihood = build_likelihood(
        settings.run.simulator, settings.simulator, layers, transitions(prepared), device
    )
    return NextWord(SuperpositionTransformer(layers), likelihood, prepared)


def build_likelihood(
    name: str, settings: SimulatorSettings, layers: int, transitions: Transitions, device: torch.device
) -> Likelihood:
    """The way to evaluate P that the config calls `name`: one of this model's own, or any simulator.

    Raises:
        UserError: the settings do not go together, or the sentences do not fit the literal circuit.
    """
    if isinstance(settings, CircuitSimulator):
        return Simulated(layers, transitions, build_simulator(name, settings, device))
    assert isinstance(settings, LikelihoodSimulator)
    checked(settings, f"simulators.{name}")
    if settings.device == "closed-form":
        form = ClosedForm if settings.gradient == "backprop" else ShiftedClosedForm
        return form(layers, transitions)
    # Qiskit is imported by those who ask for its circuits.
    from ketscale.problems.sentences.literal_transformer import LiteralCircuit

    return LiteralCircuit(layers, transitions, rebuild=settings.device == "literal")
