"""The workloads arrays and image-folder: a user's own images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ketscale.problems import own_samples, splits
from ketscale.problems.images.pixels import GREY, mode_of, pixels_of, resized
from ketscale.problems.samples import Samples

if TYPE_CHECKING:
    from ketscale.problems.images.workloads import Arrays, ImageFolder

ARRAYS = {"samples": ("images", "x"), "labels": ("labels", "y")}


def from_arrays(workload: Arrays, fetched: Path | None = None) -> Samples:
    """The images of an .npz file.

    Raises:
        UserError: an array is missing or damaged, or has another shape or type; or a class has too few samples.
    """
    there = own_samples.read(workload, ARRAYS)
    return own_samples.divided(workload, there, pixels_of(*there["samples"]), "sample", 255)


def from_folder(workload: ImageFolder, fetched: Path | None = None) -> Samples:
    """The images of each class's files, resized to squares of `image_size` pixels (bilinear, whatever their proportions).

    The images are grey if all files are, else all are in colour.

    Raises:
        UserError: a file is damaged, transparent or animated, or has more than 8 bits a channel; or a class has too
            few files.
    """
    files = workload.files()
    classes = tuple(files)
    labels = np.repeat(np.arange(len(classes)), [len(paths) for paths in files.values()])
    paths = [path for of_class in files.values() for path in of_class]
    # Every file is checked, although the first one in colour determines the mode.
    mode = "L" if {mode_of(path) for path in paths} <= GREY else "RGB"
    pixels = np.stack([resized(path, mode, workload.image_size) for path in paths])
    equal = splits.first_equal(pixels)
    parts = splits.by_shares(labels, classes, workload.shares, workload.split_seed or 0, equal)
    return Samples(values=pixels, targets=labels, names=classes, folds=[parts], peak=255)
