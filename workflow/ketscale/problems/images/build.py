"""Builds the problem of a run from its settings and its features."""

from __future__ import annotations

import numpy as np
import torch

from ketscale.config import Settings
from ketscale.problems import models
from ketscale.problems.classification import Classification
from ketscale.problems.images.features import Features


def problem(settings: Settings, features: Features, device: torch.device) -> Classification:
    """The classification of cached features or, with features: inline, of images through the frozen network.

    Raises:
        UserError: as for `models.of_run` and `Features.backbone`.
    """
    # A config with inline features but no network has been refused before.
    inline = settings.protocol.features == "inline"
    arguments = {"inputs": features.embeddings.shape[1], "outputs": len(features.classes)}
    model = models.of_run(settings, device, **arguments)
    # Copies: the arrays are memory-mapped read-only, and a run indexes them in every step.
    return Classification(
        model,
        inputs=torch.from_numpy(np.array(features.pixels if inline else features.embeddings)),
        labels=torch.from_numpy(np.array(features.labels)),
        splits={name: torch.from_numpy(rows) for name, rows in features.splits.items()},
        seed=settings.run.seed,
        backbone=features.backbone() if inline else None,
        arguments=arguments,
    )
