"""The likelihood that a simulator's settings ask for."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ketscale.engines.circuits import create as simulators
from ketscale.problems.sentences.likelihood import ClosedForm, Likelihood, ShiftedClosedForm, Simulated
from ketscale.problems.sentences.transitions import Transitions


def create(
    name: str, settings: Mapping[str, str], layers: int, transitions: Transitions, device: torch.device
) -> Likelihood:
    """The way to evaluate P that the config calls `name`; any simulator will do besides the model's own ways.

    Raises:
        UserError: the settings are not supported together, or the sentences do not fit the literal circuit.
    """
    if settings["device"] == "closed-form":
        form = ClosedForm if settings["gradient"] == "backprop" else ShiftedClosedForm
        return form(layers, transitions)
    if settings["device"] in ("literal", "literal-bound"):
        from ketscale.problems.sentences.literal_transformer import LiteralCircuit

        return LiteralCircuit(layers, transitions, rebuild=settings["device"] == "literal")
    return Simulated(layers, transitions, simulators.create(name, settings, device))
