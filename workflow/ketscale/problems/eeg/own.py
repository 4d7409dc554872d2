"""The workload series: a user's own trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.problems import arrays, splits
from ketscale.problems.eeg import overlaps
from ketscale.problems.eeg.series import Series, standardised
from ketscale.problems.splits import Parts


class Source(NamedTuple):
    """An array, and its name in errors."""

    values: NDArray[Any]
    where: str


def read_npz(files: Sequence[Path], split: str) -> dict[str, Source]:
    """The signals and labels of an .npz file, and its groups and split, as the setting `split` needs them.

    Raises:
        UserError: as for `arrays.read_npz`.
    """
    (file,) = files
    there = arrays.read_npz(file, {"signals": ("signals", "x"), "labels": ("labels", "y")}, split)
    return {name: Source(values, f"{file}: {name}") for name, values in there.items()}


def read_npy(files: Sequence[Path], split: str) -> dict[str, Source]:
    """The signals, labels and (for split: groups) groups of .npy files, given in this order.

    Raises:
        UserError: as for `arrays.read_npy`.
    """
    names = ("signals", "labels", "groups")
    return {name: Source(arrays.read_npy(file), str(file)) for name, file in zip(names, files, strict=False)}


def load(
    there: Mapping[str, Source], split: str, shares: Mapping[str, float], seed: int, standardise: bool
) -> tuple[Series, list[Parts]]:
    """Trials and their one split.

    there: signals (n, channels, steps), labels (n,), and groups (n,) or split (n,) if the split needs them. With split:
        given, trials of one group have it in common.
    shares: shares of validation and test.
    standardise: give each channel of each trial mean 0 and standard deviation 1.

    Raises:
        UserError: an array has another shape or type, or there are too few trials or groups.
    """
    signals, where = there["signals"]
    if signals.ndim != 3 or not signals.size:
        raise UserError(f"{where}: has shape {signals.shape}, not (trials, channels, steps)")
    data = arrays.single(signals, where)
    marks = overlaps.marks(data)
    if standardise:
        data = standardised(data)
    labels, classes = arrays.classes_of(there["labels"].values, len(data), there["labels"].where, "trial")
    groups = {}
    if "groups" in there:
        given = arrays.named(there["groups"].values, len(data), there["groups"].where, "trial")
        groups["groups"], _ = arrays.coded(given)
    if split == "given":
        if groups:
            # No mark of both kinds is the same.
            marks = np.append(marks, splits.marked(-1 - groups["groups"]), axis=0)
        parts = splits.as_given(there["split"].values, labels, classes, there["split"].where)
    elif split == "trials":
        parts = splits.by_shares(labels, classes, shares, seed, splits.first_equal(data))
    else:
        parts = splits.by_group(groups["groups"], seed=seed, what="groups", **shares)
        splits.check_trained(parts, labels, classes, "choose another split_seed, or add groups")
    return Series(signals=data, labels=labels, classes=classes, groups=groups, marks=marks), [parts]
