"""Series: labelled trials of several channels over time with their split, the form of every EEG data set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.config import Split
from ketscale.errors import UserError
from ketscale.problems import store
from ketscale.problems.images.images import SPLITS, stratified

if TYPE_CHECKING:
    from ketscale.problems.eeg.specification import SeriesWorkload

TRAIN_SHARE, VALIDATION_SHARE = 0.70, 0.15
# Of the runs that are not held out, the share of trials that early stopping looks at.
WITHIN_RUNS_VALIDATION = 0.2


@dataclass(frozen=True)
class Series:
    """Trials as a model sees them.

    signals: float32 (n, channels, steps), in millivolts unless standardised. labels: int64 (n,), 0 or 1.
    subjects, runs: int64 (n,), which subject and recording each trial is from.
    """

    signals: NDArray[np.float32]
    labels: NDArray[np.int64]
    subjects: NDArray[np.int64]
    runs: NDArray[np.int64]

    @property
    def classes(self) -> int:
        """How many labels there are."""
        return int(self.labels.max()) + 1

    def digest(self) -> str:
        """SHA-256 over all arrays: the data's identity."""
        total = hashlib.sha256()
        arrays: list[NDArray[Any]] = [self.signals, self.labels, self.subjects, self.runs]
        for array in arrays:
            total.update(f"{array.dtype.str}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()


def by_subject(series: Series, seed: int) -> dict[str, NDArray[np.int64]]:
    """Indices of train, validation and test, 70/15/15 of the subjects drawn with `seed`: no subject is in two.

    Raises:
        UserError: fewer than three subjects, which leave a split empty.
    """
    subjects = np.unique(series.subjects)
    if len(subjects) < 3:
        raise UserError(
            f"a split by subject needs at least 3 subjects, not {len(subjects)}: set split: runs, or add subjects"
        )
    drawn = np.random.default_rng(seed).permutation(subjects)
    held = max(1, round((1 - TRAIN_SHARE - VALIDATION_SHARE) * len(subjects)))
    groups = {
        "train": drawn[2 * held :],
        "validation": drawn[held : 2 * held],
        "test": drawn[:held],
    }
    return {name: np.flatnonzero(np.isin(series.subjects, groups[name])) for name in SPLITS}


def leaving_one_run_out(series: Series, seed: int) -> list[dict[str, NDArray[np.int64]]]:
    """A split for each run, which is its test; validation is drawn with `seed` from the other runs' trials.

    Raises:
        UserError: more than one subject, a single run, or too few trials beside it.
    """
    runs, subjects = np.unique(series.runs), np.unique(series.subjects)
    if len(subjects) > 1 or len(runs) < 2:
        raise UserError(
            f"a split by runs takes one subject and at least 2 runs, not {len(subjects)} and {len(runs)}"
        )
    folds = []
    for run in runs:
        others = np.flatnonzero(series.runs != run)
        if np.bincount(series.labels[others], minlength=2).min() < 2:
            raise UserError(f"without run {run} there are fewer than 2 trials of a class: add runs")
        count = max(2, round(WITHIN_RUNS_VALIDATION * len(others)))
        train, validation = stratified(series.labels, others, count, seed)
        folds.append({"train": train, "validation": validation, "test": np.flatnonzero(series.runs == run)})
    return folds


# --- prepared trials on disk ---

VERSION = 1  # raise it whenever the arithmetic of a workload that gives series changes
FILES = ("signals.npy", "labels.npy", "subjects.npy", "runs.npy", "splits.npz")


@dataclass(frozen=True)
class Prepared:
    """Trials as a run reads them, mapped from disk, with the folds of their split."""

    series: Series
    folds: list[dict[str, NDArray[np.int64]]]
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
        arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS]
        with np.load(folder / "splits.npz") as archive:
            count = len(archive.files) // len(SPLITS)
            folds = [{name: archive[f"{i}.{name}"] for name in SPLITS} for i in range(count)]
        return cls(
            Series(*arrays), folds, described["settings"]["split"], described["hash"], described["data_hash"]
        )

    def fold(self, seed: int) -> tuple[dict[str, NDArray[np.int64]], Split]:
        """The split of the run with this seed, and what it is: for the record."""
        if self.how == "subjects":
            return self.folds[0], Split("subjects")
        number = seed % len(self.folds)
        held_out = int(self.series.runs[self.folds[number]["test"][0]])
        return self.folds[number], Split("runs", number, len(self.folds), held_out)


_ARRAYS = ("signals", "labels", "subjects", "runs")


def prepare(workload: SeriesWorkload, manifest: Path, fetched: Path | None) -> None:
    """Write a workload's trials and their split, then the manifest; a valid folder is used again.

    fetched: the folder of what the rule `fetch` has fetched, where anything was.

    Raises:
        UserError: settings or data are missing, damaged or do not fit; nothing is left behind.
    """
    series = workload.load(fetched)
    split, seed = workload.split, workload.split_seed
    folds = [by_subject(series, seed)] if split == "subjects" else leaving_one_run_out(series, seed)
    identity = {
        "workload": type(workload).__name__,
        "settings": workload.content(),
        "data_hash": series.digest(),
        "code_version": VERSION,
    }

    def fill(folder: Path) -> dict[str, Any]:
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", getattr(series, name))
        named = {f"{i}.{name}": fold[name] for i, fold in enumerate(folds) for name in SPLITS}
        np.savez(folder / "splits.npz", allow_pickle=False, **named)
        return {"samples": len(series.labels), "shape": list(series.signals.shape[1:])}

    store.publish(manifest, identity, FILES, fill)
