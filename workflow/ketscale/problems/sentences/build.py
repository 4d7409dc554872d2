"""Builds the problem of a run from its settings and its sentences."""

from __future__ import annotations

import torch

from ketscale.config import Settings
from ketscale.problems.sentences.likelihood import build_likelihood
from ketscale.problems.sentences.next_word import NextWord, transitions
from ketscale.problems.sentences.sentences import Prepared
from ketscale.problems.sentences.transformer import SuperpositionTransformer


def problem(settings: Settings, prepared: Prepared, device: torch.device) -> NextWord:
    """The prediction of next words; the simulator says how its probabilities are evaluated.

    Raises:
        UserError: as for `build_likelihood`.
    """
    assert settings.simulator is not None
    layers = settings.sizes["layers"]
    likelihood = build_likelihood(
        settings.run.simulator, settings.simulator.content(), layers, transitions(prepared), device
    )
    return NextWord(SuperpositionTransformer(layers), likelihood, prepared)
