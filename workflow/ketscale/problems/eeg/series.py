"""Series: labelled trials of several channels over time with their split, the form of every EEG data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.config import Split
from ketscale.errors import UserError
from ketscale.problems import arrays, store
from ketscale.problems.splits import SPLITS, Parts, by_group, stratified

if TYPE_CHECKING:
    from ketscale.problems.eeg.workloads import SeriesWorkload

# The classes of eegmmidb, and of what is generated in its shape.
FISTS = ("left fist", "right fist")
TRAIN_SHARE, VALIDATION_SHARE = 0.70, 0.15
# Of the runs that are not held out, the share of trials that early stopping looks at.
WITHIN_RUNS_VALIDATION = 0.2


@dataclass(frozen=True, kw_only=True)
class Series:
    """Trials as a model sees them.

    signals: float32 (n, channels, steps), in the unit of the data set (millivolts for eegmmidb) unless standardised.
    labels: int64 (n,), indices into `classes`, which are their names.
    groups: what trials have in common by its name, each int64 (n,), such as the subject and the run of each trial.
    """

    signals: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: Mapping[str, NDArray[np.int64]]

    def digest(self) -> str:
        """SHA-256 over all arrays: the data's identity."""
        return arrays.digest((self.signals, self.labels, *self.groups.values()))


def folds(series: Series, split: str, seed: int) -> list[Parts]:
    """The one split by subjects, or a split for each run that is left out.

    Raises:
        UserError: there are too few of them.
    """
    return [by_subject(series, seed)] if split == "subjects" else leaving_one_run_out(series, seed)


def by_subject(series: Series, seed: int) -> Parts:
    """Indices of train, validation and test, 70/15/15 of the subjects drawn with `seed`: no subject is in two.

    Raises:
        UserError: fewer than three subjects, which leave a split empty.
    """
    held_out = 1 - TRAIN_SHARE - VALIDATION_SHARE
    return by_group(series.groups["subjects"], held_out, held_out, seed, "subjects")


def leaving_one_run_out(series: Series, seed: int) -> list[Parts]:
    """A split for each run, which is its test; validation is drawn with `seed` from the other runs' trials.

    Raises:
        UserError: more than one subject, a single run, or too few trials beside it.
    """
    of_run = series.groups["runs"]
    runs, subjects = np.unique(of_run), np.unique(series.groups["subjects"])
    if len(subjects) > 1 or len(runs) < 2:
        raise UserError(
            f"a split by runs takes one subject and at least 2 runs, not {len(subjects)} and {len(runs)}"
        )
    left_out = []
    for run in runs:
        others = np.flatnonzero(of_run != run)
        if np.bincount(series.labels[others], minlength=len(series.classes)).min() < 2:
            raise UserError(f"without run {run} there are fewer than 2 trials of a class: add runs")
        count = max(2, round(WITHIN_RUNS_VALIDATION * len(others)))
        train, validation = stratified(series.labels, others, count, seed)
        left_out.append({"train": train, "validation": validation, "test": np.flatnonzero(of_run == run)})
    return left_out


# --- prepared trials on disk ---

VERSION = 2  # raise it whenever the arithmetic of a workload that gives series, or the files, change
FILES = ("signals.npy", "labels.npy", "groups.npz", "splits.npz")


@dataclass(frozen=True)
class Prepared:
    """Trials as a run reads them, mapped from disk, with the folds of their split."""

    series: Series
    folds: list[Parts]
    how: str
    hash: str
    data_hash: str

    @classmethod
    def open(cls, manifest: Path, verify: bool = True) -> Prepared:
        """Map what `manifest` points to.

        Raises:
            UserError: as for `store.opened`.
        """
        folder, described = store.opened(manifest, FILES, VERSION, verify)
        with np.load(folder / "groups.npz") as archive:
            groups = {name: archive[name] for name in archive.files}
        series = Series(
            signals=np.load(folder / "signals.npy", mmap_mode="r"),
            labels=np.load(folder / "labels.npy", mmap_mode="r"),
            classes=tuple(described["classes"]),
            groups=groups,
        )
        with np.load(folder / "splits.npz") as archive:
            count = len(archive.files) // len(SPLITS)
            folds = [{name: archive[f"{i}.{name}"] for name in SPLITS} for i in range(count)]
        return cls(series, folds, described["settings"]["split"], described["hash"], described["data_hash"])

    def fold(self, seed: int) -> tuple[Parts, Split]:
        """The split of the run with this seed, and what it is: for the record."""
        if self.how != "runs":
            return self.folds[0], Split(self.how)
        number = seed % len(self.folds)
        held_out = int(self.series.groups["runs"][self.folds[number]["test"][0]])
        return self.folds[number], Split("runs", number, len(self.folds), held_out)


def prepare(workload: SeriesWorkload, manifest: Path, fetched: Path | None) -> None:
    """Write a workload's trials and their split, then the manifest; a valid folder is used again.

    fetched: the folder of what the rule `fetch` has fetched, where anything was.

    Raises:
        UserError: settings or data are missing, damaged or do not fit; nothing is left behind.
    """
    series, folds = workload.load(fetched)
    named = {f"{i}.{name}": fold[name] for i, fold in enumerate(folds) for name in SPLITS}
    identity = {
        "workload": type(workload).__name__,
        "settings": workload.content(),
        "data_hash": series.digest(),
        "classes": series.classes,
        "groups": list(series.groups),
        "splits_hash": arrays.digest(named.values()),
        "code_version": VERSION,
    }

    def fill(folder: Path) -> dict[str, Any]:
        np.save(folder / "signals.npy", series.signals)
        np.save(folder / "labels.npy", series.labels)
        np.savez(folder / "groups.npz", allow_pickle=False, **series.groups)
        np.savez(folder / "splits.npz", allow_pickle=False, **named)
        return {"samples": len(series.labels), "shape": list(series.signals.shape[1:])}

    store.publish(manifest, identity, FILES, fill)
