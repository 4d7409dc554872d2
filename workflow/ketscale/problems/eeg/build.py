"""Builds the problem of a run from its settings and its trials."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ketscale.config import Settings
from ketscale.problems import models
from ketscale.problems.classification import Classification
from ketscale.problems.eeg.series import Series
from ketscale.problems.splits import Parts


class Fold(NamedTuple):
    """Trials with the split of one run."""

    series: Series
    splits: Parts


def problem(settings: Settings, fold: Fold, device: torch.device) -> Classification:
    """The classification of trials.

    Raises:
        UserError: as for `models.of_run`.
    """
    series, splits = fold
    arguments = {"inputs": series.signals.shape[1:], "outputs": len(series.classes)}
    model = models.of_run(settings, device, **arguments)
    return Classification(
        model,
        # Copies: the arrays are memory-mapped read-only, and a run indexes them in every step.
        inputs=torch.from_numpy(np.array(series.signals)),
        labels=torch.from_numpy(np.array(series.labels)),
        splits={name: torch.from_numpy(rows) for name, rows in splits.items()},
        seed=settings.run.seed,
        arguments=arguments,
    )
