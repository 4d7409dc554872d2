"""Images: labelled grey images with their split, the common form of every image data set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Images:
    """Grey images as the data set stores them.

    pixels: uint8 (n, height, width), 0 is background and `peak` is full ink.
    labels: int64 (n,), 0..9.
    splits: for each of train, validation and test the int64 indices of its samples; they are disjoint.
    peak: the pixel value of full ink (16 for digits, 255 for mnist).
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    splits: dict[str, NDArray[np.int64]]
    peak: int

    def digest(self) -> str:
        """SHA-256 over pixels, labels, splits and peak: the data's identity."""
        total = hashlib.sha256(str(self.peak).encode())
        arrays: list[NDArray[Any]] = [self.pixels, self.labels, *(self.splits[name] for name in SPLITS)]
        for array in arrays:
            total.update(f"{array.dtype.str}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    def brightness(self) -> tuple[float, float]:
        """Mean and standard deviation of the training split's pixels, where full ink is 1."""
        train = self.pixels[self.splits["train"]] / self.peak
        return float(train.mean()), float(train.std())


def stratified(
    labels: NDArray[np.int64], among: NDArray[np.int64], count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split the indices `among` into (the rest, `count` drawn with every label's share), both sorted."""
    from sklearn.model_selection import train_test_split

    rest, drawn = train_test_split(among, test_size=count, stratify=labels[among], random_state=seed)
    return np.sort(rest), np.sort(drawn)
