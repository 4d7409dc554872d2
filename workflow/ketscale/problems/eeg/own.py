"""The workload series: a user's own trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ketscale.errors import UserError
from ketscale.problems import arrays, own_samples
from ketscale.problems.eeg import overlaps
from ketscale.problems.preprocessing import standardised
from ketscale.problems.samples import Samples

if TYPE_CHECKING:
    from ketscale.problems.eeg.workloads import OwnSeries

ARRAYS = {"samples": ("signals", "x"), "labels": ("labels", "y")}


def load(workload: OwnSeries, fetched: Path | None = None) -> Samples:
    """The trials of a workload, and their one split; nothing is fetched.

    Its files have signals (n, channels, steps), labels (n,), and groups (n,) or split (n,) if the split needs them. With
    split: given, trials of one group have it in common.

    Raises:
        UserError: an array has another shape or type, or there are too few trials or groups.
    """
    there = own_samples.read(workload, ARRAYS)
    signals, where = there["samples"]
    if signals.ndim != 3 or not signals.size:
        raise UserError(f"{where}: has shape {signals.shape}, not (trials, channels, steps)")
    data = arrays.single(signals, where)
    marks = overlaps.marks(data)
    if workload.standardise:
        data = standardised(data)
    samples = own_samples.divided(workload, there, data, "trial")
    return replace(samples, marks=np.append(marks, samples.marks, axis=0))
