"""Prepared trials on disk, with the folds of their split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale.config import Data, Settings, Split, fold_of
from ketscale.problems import arrays, splits, store
from ketscale.problems.datasets import Dataset
from ketscale.problems.eeg.trials import Trials
from ketscale.problems.preprocessing import Series
from ketscale.problems.splits import SPLITS, Parts

if TYPE_CHECKING:
    from ketscale.problems.eeg.workloads import SeriesWorkload

VERSION = 4  # increase it whenever the arithmetic of a workload of series, or the files, change
FILES = ("signals.npy", "labels.npy", "groups.npz", "splits.npz")


@dataclass(frozen=True)
class PreparedTrials:
    """Trials mapped from disk, with the folds of their split.

    folder: of its entries, `shared` has `splits.shared` of each fold, and `data_hash` is `Trials.digest`.
    """

    trials: Trials
    folds: list[Parts]
    folder: store.PreparedFolder

    @classmethod
    def open(cls, manifest: Path) -> PreparedTrials:
        """Map the arrays that `manifest` points to.

        Raises:
            UserError: as for `store.opened`.
        """
        folder = store.opened(manifest, FILES, VERSION)
        trials = Trials(
            signals=folder.array("signals.npy"),
            labels=folder.array("labels.npy"),
            classes=tuple(folder.entries["classes"]),
            groups=folder.arrays("groups.npz"),
        )
        parts = folder.arrays("splits.npz")
        folds = [{name: parts[f"{i}.{name}"] for name in SPLITS} for i in range(len(parts) // len(SPLITS))]
        return cls(trials, folds, folder)

    def data(self, seed: int) -> Data:
        """The trials with the split of the run with this seed.

        With split: runs, the fold of this seed (`fold_of`).
        """
        how, shared = self.folder.entries["settings"]["split"], self.folder.entries["shared"]
        number = fold_of(seed, len(self.folds)) if how == "runs" else 0
        parts, trials = self.folds[number], self.trials
        split = Split(how, shared=shared[number])
        if how == "runs":
            held_out = int(trials.groups["runs"][parts["test"][0]])
            split = Split(how, number, len(self.folds), held_out, shared[number])
        shape = trials.signals.shape[1:]
        preprocessing = Series(
            names=trials.classes,
            shape=shape,
            standardise=self.folder.entries["settings"].get("standardise", False),
        )
        samples = Dataset(
            trials.signals, trials.labels, trials.classes, parts, shape, preprocessing=preprocessing
        )
        return self.folder.data(samples, split)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the trials, and choose the split by the run's seed."""
    return PreparedTrials.open(manifest).data(settings.run.seed)


def prepare(workload: SeriesWorkload, manifest: Path, fetched: Path | None) -> None:
    """Write a workload's trials and their split, then the manifest; an intact folder is reused.

    fetched: the folder of the files that the rule `fetch` has fetched, if there are any.

    Raises:
        UserError: data are missing, damaged or do not fit the settings; nothing is left behind.
    """
    trials, folds = workload.load(fetched)
    named = {f"{i}.{name}": fold[name] for i, fold in enumerate(folds) for name in SPLITS}
    equal = splits.first_equal(trials.signals)
    identity = store.identity_of(
        workload,
        trials.digest(),
        VERSION,
        classes=trials.classes,
        groups=list(trials.groups),
        splits_hash=arrays.digest(named.values()),
        # Trials that are equal once they are standardised may differ in what they had in common before.
        shared=[splits.shared(fold, equal, trials.marks) for fold in folds],
    )

    def fill(folder: Path) -> dict[str, Any]:
        store.write(
            folder, dict(zip(FILES, (trials.signals, trials.labels, trials.groups, named), strict=True))
        )
        return {"samples": len(trials.labels), "shape": list(trials.signals.shape[1:])}

    store.publish(manifest, identity, FILES, fill)
