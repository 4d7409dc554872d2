"""Prepared trials on disk, with the folds of their split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ketscale.config import Split, fold_of
from ketscale.problems import arrays, splits, store
from ketscale.problems.eeg.series import Series
from ketscale.problems.splits import SPLITS, Parts

if TYPE_CHECKING:
    from ketscale.problems.eeg.workloads import SeriesWorkload

VERSION = 3  # increase it whenever the arithmetic of a workload of series, or the files, change
FILES = ("signals.npy", "labels.npy", "groups.npz", "splits.npz")


@dataclass(frozen=True)
class Prepared:
    """Trials as a run reads them, mapped from disk, with the folds of their split.

    how: the setting `split`. shared: `splits.shared` of each fold. hash: the folder's name, which a record keeps.
    data_hash: `Series.digest`.
    """

    series: Series
    folds: list[Parts]
    how: str
    shared: list[int]
    hash: str
    data_hash: str

    @classmethod
    def open(cls, manifest: Path) -> Prepared:
        """Map the arrays that `manifest` points to.

        Raises:
            UserError: as for `store.opened`.
        """
        folder, described = store.opened(manifest, FILES, VERSION)
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
        how, shared = described["settings"]["split"], described["shared"]
        return cls(series, folds, how, shared, described["hash"], described["data_hash"])

    def fold(self, seed: int) -> tuple[Parts, Split]:
        """The split of the run with this seed, and its description for the record.

        With split: runs, the fold of this seed (`fold_of`).
        """
        if self.how != "runs":
            return self.folds[0], Split(self.how, shared=self.shared[0])
        number = fold_of(seed, len(self.folds))
        held_out = int(self.series.groups["runs"][self.folds[number]["test"][0]])
        return self.folds[number], Split("runs", number, len(self.folds), held_out, self.shared[number])


def prepare(workload: SeriesWorkload, manifest: Path, fetched: Path | None) -> None:
    """Write a workload's trials and their split, then the manifest; an intact folder is reused.

    fetched: the folder of the files that the rule `fetch` has fetched, if there are any.

    Raises:
        UserError: data are missing, damaged or do not fit the settings; nothing is left behind.
    """
    series, folds = workload.load(fetched)
    named = {f"{i}.{name}": fold[name] for i, fold in enumerate(folds) for name in SPLITS}
    equal = splits.first_equal(series.signals)
    identity = {
        "workload": type(workload).__name__,
        "settings": workload.content(),
        "data_hash": series.digest(),
        "classes": series.classes,
        "groups": list(series.groups),
        "splits_hash": arrays.digest(named.values()),
        # Trials that are equal once they are standardised may differ in what they had in common before.
        "shared": [splits.shared(fold, equal, series.marks) for fold in folds],
        "code_version": VERSION,
    }

    def fill(folder: Path) -> dict[str, Any]:
        np.save(folder / "signals.npy", series.signals)
        np.save(folder / "labels.npy", series.labels)
        np.savez(folder / "groups.npz", allow_pickle=False, **series.groups)
        np.savez(folder / "splits.npz", allow_pickle=False, **named)
        return {"samples": len(series.labels), "shape": list(series.signals.shape[1:])}

    store.publish(manifest, identity, FILES, fill)
