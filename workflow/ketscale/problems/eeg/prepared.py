"""Prepared trials on disk, with the folds of their split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale.config import Data, Settings, Split
from ketscale.problems import arrays, store
from ketscale.problems.datasets import Dataset
from ketscale.problems.preprocessing import Series
from ketscale.problems.splits import SPLITS

if TYPE_CHECKING:
    from ketscale.problems.eeg.workloads import SeriesWorkload

VERSION = 4  # increase it whenever the arithmetic of a workload of series, or the files, change
FILES = ("signals.npy", "labels.npy", "groups.npz", "splits.npz")


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
