"""The workload digits: scikit-learn's 1,797 real 8x8 scans, which ship with the library."""

from __future__ import annotations

import numpy as np

from ketscale.optional import needed_for
from ketscale.problems.images.images import Images
from ketscale.problems.splits import stratified

PEAK = 16  # the scans have 17 levels of ink, 0..16, which are kept exactly
HELD_OUT = 180  # samples for validation, and the same number for the test


def load(split_seed: int) -> Images:
    """The scans, split 1,437/180/180 with each digit's share in every part."""
    with needed_for("workload digits", "images"):
        from sklearn.datasets import load_digits

    scans = load_digits()
    labels = scans.target.astype(np.int64)
    rest, test = stratified(labels, np.arange(len(labels)), HELD_OUT, split_seed)
    train, validation = stratified(labels, rest, HELD_OUT, split_seed)
    splits = {"train": train, "validation": validation, "test": test}
    pixels = scans.images.astype(np.uint8)
    return Images(pixels=pixels, labels=labels, splits=splits, peak=PEAK, classes=tuple("0123456789"))
