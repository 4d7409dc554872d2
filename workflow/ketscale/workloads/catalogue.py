"""The data sets by name: what each needs and accepts. Light: the Snakefile imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.workloads.images import Images

WEIGHTS = ("selfsupervised", "imagenet")


@dataclass(frozen=True)
class Entry:
    """One workload: its idx files per split (none: it ships with a library) and its settings."""

    files: Mapping[str, tuple[str, ...]]
    required: tuple[str, ...]
    optional: tuple[str, ...]


_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")

WORKLOADS: dict[str, Entry] = {
    "digits": Entry({}, ("split_seed", "weights", "image_size"), ("weights_folder",)),
    "mnist": Entry(
        {"original": _TRAIN + _TEST, "test-images": _TEST},
        ("split", "split_seed", "weights", "image_size"),
        ("folder", "weights_folder"),
    ),
}


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
    if settings["weights"] not in WEIGHTS:
        raise UserError(
            f"workloads.{workload}.weights is {settings['weights']!r}: choose {' or '.join(WEIGHTS)}"
        )
    if "weights_folder" in settings and settings["weights"] != "imagenet":
        raise UserError(f"workloads.{workload}.weights_folder is for weights: imagenet; leave it out")
    seed = settings["split_seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise UserError(
            f"workloads.{workload}.split_seed is {seed!r}: it must be an integer from 0 to 2**32-1"
        )
    if entry.files and settings["split"] not in entry.files:
        raise UserError(
            f"workloads.{workload}.split is {settings['split']!r}: choose {' or '.join(entry.files)}"
        )


def load(workload: str, settings: Mapping[str, Any], source: Path | None) -> Images:
    """The images of a workload; `source` is the folder with its files, where it needs any.

    Raises:
        UserError: as for `check`, or the data is missing or damaged.
    """
    check(workload, settings)
    if workload == "digits":
        from ketscale.workloads import digits

        return digits.load(settings["split_seed"])
    from ketscale.workloads import mnist

    if source is None:
        raise UserError(
            "mnist needs a folder with its idx files: set workloads.mnist.folder, or run the rule fetch_mnist"
        )
    return mnist.load(source, settings["split"], settings["split_seed"])
