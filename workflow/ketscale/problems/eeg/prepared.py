"""Trials: the splits by their subjects or runs, those of a user's own, and how they are kept on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ketscale.config import Data, Settings, Split
from ketscale.errors import UserError
from ketscale.problems import arrays, own_samples, store
from ketscale.problems.datasets import Dataset
from ketscale.problems.eeg import overlaps
from ketscale.problems.preprocessing import Series, standardised
from ketscale.problems.samples import Samples
from ketscale.problems.splits import SPLITS, Parts, by_group, check_trained, stratified

if TYPE_CHECKING:
    from ketscale.problems.eeg.specification import OwnSeries, SeriesWorkload

VERSION = 4  # increase it whenever the arithmetic of a workload of series, or the files, change
FILES = ("signals.npy", "labels.npy", "groups.npz", "splits.npz")
ARRAYS = {"samples": ("signals", "x"), "labels": ("labels", "y")}
TRAIN_SHARE, VALIDATION_SHARE = 0.70, 0.15
# The share of the other runs' trials that early stopping looks at when one run is held out.
WITHIN_RUNS_VALIDATION = 0.2


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the trials; of a split by runs, the run's seed, modulo the number of folds, chooses the fold."""
    folder = store.opened(manifest, VERSION)
    signals, parts = folder.array("signals.npy"), folder.arrays("splits.npz")
    split, shared = folder.entries["settings"]["split"], folder.entries["shared"]
    folds = len(parts) // len(SPLITS)
    number = settings.run.seed % folds if split == "runs" else 0
    own = {name: parts[f"{number}.{name}"] for name in SPLITS}
    about = Split(split, shared=shared[number])
    if split == "runs":
        held_out = int(folder.arrays("groups.npz")["runs"][own["test"][0]])
        about = Split(split, number, folds, held_out, shared[number])
    classes, shape = tuple(folder.entries["classes"]), signals.shape[1:]
    standardise = folder.entries["settings"].get("standardise", False)
    series = Series(names=classes, shape=shape, standardise=standardise)
    data = Dataset(signals, folder.array("labels.npy"), classes, own, shape, preprocessing=series)
    return folder.data(data, about)


def prepare(workload: SeriesWorkload, manifest: Path, fetched: Path | None) -> None:
    """Write a workload's trials and their split, then the manifest; an intact folder is reused.

    fetched: the folder of the files that the rule `fetch` has fetched, if there are any.

    Raises:
        UserError: data are missing, damaged or do not fit the settings; nothing is left behind.
    """
    trials = workload.load(fetched)
    indices = {f"{i}.{name}": fold[name] for i, fold in enumerate(trials.folds) for name in SPLITS}
    identity = store.identity_of(
        workload,
        arrays.digest((trials.values, trials.targets, *trials.groups.values())),
        VERSION,
        classes=trials.names,
        groups=list(trials.groups),
        splits_hash=arrays.digest(indices.values()),
        # Trials that are equal once they are standardised may differ in what they had in common before.
        shared=trials.shared(),
    )

    def fill(folder: Path) -> dict[str, Any]:
        store.write(
            folder, dict(zip(FILES, (trials.values, trials.targets, trials.groups, indices), strict=True))
        )
        return {"samples": len(trials.targets), "shape": list(trials.values.shape[1:])}

    store.publish(manifest, identity, FILES, fill)


def from_arrays(workload: OwnSeries, fetched: Path | None = None) -> Samples:
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


def folds(trials: Samples, split: str, seed: int) -> list[Parts]:
    """One split by subjects, or one split for each held-out run.

    split: 'subjects' or 'runs'.
    """
    return [by_subject(trials, seed)] if split == "subjects" else leaving_one_run_out(trials, seed)


def by_subject(trials: Samples, seed: int) -> Parts:
    """70/15/15 % of the subjects, drawn with `seed`, for train, validation and test: no subject is in two parts.

    Raises:
        UserError: there are fewer than three subjects, or a class has no training sample.
    """
    held_out = 1 - TRAIN_SHARE - VALIDATION_SHARE
    parts = by_group(trials.groups["subjects"], held_out, held_out, seed, "subjects")
    check_trained(parts, trials.targets, trials.names, "choose another split_seed, or add subjects")
    return parts


def leaving_one_run_out(trials: Samples, seed: int) -> list[Parts]:
    """A split for each run, in which that run is the test; validation is drawn from the other runs' trials.

    Raises:
        UserError: there is more than one subject or only one run, or the other runs have too few trials.
    """
    of_run = trials.groups["runs"]
    runs, subjects = np.unique(of_run), np.unique(trials.groups["subjects"])
    if len(subjects) > 1 or len(runs) < 2:
        raise UserError("a split by runs needs one subject and two runs or more")
    folds = []
    for run in runs:
        others = np.flatnonzero(of_run != run)
        if np.bincount(trials.targets[others], minlength=len(trials.names)).min() < 2:
            raise UserError(f"without run {run} there are fewer than 2 trials of a class: add runs")
        count = max(2, round(WITHIN_RUNS_VALIDATION * len(others)))
        train, validation = stratified(trials.targets, others, count, seed, "eeg")
        folds.append({"train": train, "validation": validation, "test": np.flatnonzero(of_run == run)})
    return folds
