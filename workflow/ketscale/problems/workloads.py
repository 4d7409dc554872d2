"""The data sets by name: what each needs and accepts. Light: the Snakefile imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.problems.eeg.series import Series
    from ketscale.problems.images.images import Images

WEIGHTS = ("selfsupervised", "imagenet")
# How series are split: by subject, or one run of a single subject at a time.
SERIES_SPLITS = ("subjects", "runs")


@dataclass(frozen=True)
class Entry:
    """One workload: what it gives a model ("images", "series" or "sentences"), its settings, whether it reads files.

    generated: nothing in it was measured, which every figure says.
    """

    gives: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    reads_files: bool
    generated: bool = False


WORKLOADS: dict[str, Entry] = {
    "digits": Entry("images", ("split_seed", "weights", "image_size"), ("weights_folder",), False),
    "mnist": Entry(
        "images", ("split", "split_seed", "weights", "image_size"), ("folder", "weights_folder"), True
    ),
    "eegmmidb": Entry(
        "series",
        ("subjects", "runs", "rate", "split", "split_seed"),
        ("folder", "window", "band", "standardise"),
        True,
    ),
    "eeg-synthetic": Entry(
        "series",
        ("subjects", "trials", "rate", "window_s", "seed", "split", "split_seed"),
        ("gain",),
        False,
        generated=True,
    ),
    "sentences": Entry("sentences", ("seed", "held_out", "split_seed"), ("file",), True),
}

_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
MNIST_FILES: dict[str, tuple[str, ...]] = {"original": _TRAIN + _TEST, "test-images": _TEST}


def files(workload: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a workload reads, relative to its folder; idx files without a possible ending .gz."""
    if workload == "mnist":
        return MNIST_FILES[settings["split"]]
    if workload == "eegmmidb":
        return tuple(eeg_file(s, r) for s in settings["subjects"] for r in settings["runs"])
    return ()


def eeg_file(subject: int, run: int) -> str:
    """The file of a run of eegmmidb, e.g. S001/S001R04.edf."""
    return f"S{subject:03d}/S{subject:03d}R{run:02d}.edf"


def check(workload: str, settings: Mapping[str, Any]) -> None:
    """Check a workload's name and settings without reading any data.

    Raises:
        UserError: an unknown workload, a missing or unknown setting, or a value that does not fit.
    """
    entry = WORKLOADS.get(workload)
    if entry is None:
        raise UserError(f"unknown workload {workload!r}: choose one of {', '.join(WORKLOADS)}")
    if missing := [name for name in entry.required if name not in settings]:
        raise UserError(f"workloads.{workload} lacks {', '.join(missing)}")
    if unknown := sorted(set(settings) - {*entry.required, *entry.optional}):
        raise UserError(
            f"workloads.{workload} does not know {', '.join(unknown)}; "
            f"it takes {', '.join(entry.required + entry.optional)}"
        )
    seed = settings["split_seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise UserError(
            f"workloads.{workload}.split_seed is {seed!r}: it must be an integer from 0 to 2**32-1"
        )
    if entry.gives == "sentences":
        return
    if entry.gives == "series":
        _one_of(workload, "split", settings, SERIES_SPLITS)
        return
    _one_of(workload, "weights", settings, WEIGHTS)
    if "weights_folder" in settings and settings["weights"] != "imagenet":
        raise UserError(f"workloads.{workload}.weights_folder is for weights: imagenet; leave it out")
    if workload == "mnist":
        _one_of(workload, "split", settings, tuple(MNIST_FILES))


def _one_of(workload: str, setting: str, settings: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if settings[setting] not in known:
        raise UserError(
            f"workloads.{workload}.{setting} is {settings[setting]!r}: choose {' or '.join(known)}"
        )


def load_series(workload: str, settings: Mapping[str, Any], source: Path | None) -> Series:
    """The trials of a workload that gives series; `source` is the folder with its files, where it needs any.

    Raises:
        UserError: as for `check`, or the data is missing or damaged.
    """
    check(workload, settings)
    if workload == "eeg-synthetic":
        from ketscale.problems.eeg import eeg_synthetic

        names = ("subjects", "trials", "rate", "window_s", "seed", "gain")
        return eeg_synthetic.generate(**{name: settings[name] for name in names if name in settings})
    from ketscale.problems.eeg import eegmmidb

    if source is None:
        raise UserError(
            "eegmmidb needs a folder with its EDF files: set workloads.eegmmidb.folder, or run the rule fetch_eegmmidb"
        )
    names = ("subjects", "runs", "rate", "window", "band", "standardise")
    return eegmmidb.load(source, **{name: settings[name] for name in names if name in settings})


def load(workload: str, settings: Mapping[str, Any], source: Path | None) -> Images:
    """The images of a workload that gives images; `source` is the folder with its files, where it needs any.

    Raises:
        UserError: as for `check`, or the data is missing or damaged.
    """
    check(workload, settings)
    if workload == "digits":
        from ketscale.problems.images import digits

        return digits.load(settings["split_seed"])
    from ketscale.problems.images import mnist

    if source is None:
        raise UserError(
            "mnist needs a folder with its idx files: set workloads.mnist.folder, or run the rule fetch_mnist"
        )
    return mnist.load(source, settings["split"], settings["split_seed"])
