"""The workload series: a user's own trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ketscale.errors import UserError
from ketscale.problems import arrays, splits
from ketscale.problems.eeg import overlaps
from ketscale.problems.eeg.trials import Trials, standardised
from ketscale.problems.own_samples import OwnSamples
from ketscale.problems.splits import Parts

WANTED = {"signals": ("signals", "x"), "labels": ("labels", "y")}


def load(
    files: Mapping[str, Path], split: str, shares: Mapping[str, float], seed: int, standardise: bool
) -> tuple[Trials, list[Parts]]:
    """Trials and their one split.

    files: an .npz file as `file`, or .npy files as signals, labels and (for split: groups) groups. They have signals (n,
        channels, steps), labels (n,), and groups (n,) or split (n,) if the split needs them. With split: given, trials
        of one group have it in common.
    shares: shares of validation and test.
    standardise: give each channel of each trial mean 0 and standard deviation 1.

    Raises:
        UserError: an array has another shape or type, or there are too few trials or groups.
    """
    own = OwnSamples.read(files, WANTED, split, "trial")
    signals, where = own.arrays["signals"]
    if signals.ndim != 3 or not signals.size:
        raise UserError(f"{where}: has shape {signals.shape}, not (trials, channels, steps)")
    data = arrays.single(signals, where)
    marks = overlaps.marks(data)
    if standardise:
        data = standardised(data)
    found = own.divided(len(data), shares, seed, lambda: splits.first_equal(data))
    trials = Trials(
        signals=data,
        labels=found.labels,
        classes=found.classes,
        groups={} if found.groups is None else {"groups": found.groups},
        marks=np.append(marks, found.marks, axis=0),
    )
    return trials, [found.parts]
