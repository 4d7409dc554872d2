"""Labelled images or features with their split, the forms of every data set of the family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.problems import arrays, splits
from ketscale.problems.splits import NO_MARKS, SPLITS, Marks, Parts


def first_equal(values: NDArray[Any]) -> NDArray[np.int64]:
    """`splits.first_equal` of images, or of features (n, k), as the network or the model sees them.

    Pixels from 0 to 1 are equal up to single precision's step at 1, since brightness is taken from them.
    """
    if values.ndim == 2:
        return splits.first_equal_features(values)
    if values.dtype.kind == "f":
        values = np.rint(values / np.finfo(np.float32).eps).astype(np.int32)
    return splits.first_equal(values)


@dataclass(frozen=True, kw_only=True)
class SplitSamples(ABC):
    """Labelled samples as the data set stores them, with their split.

    labels: int64 (n,), indices into `classes`.
    splits: the int64 indices of the samples in train, validation and test, which are disjoint.
    classes: the names of the classes.
    marks: the things that samples have in common besides equal values, such as groups.
    """

    labels: NDArray[np.int64]
    splits: Parts
    classes: tuple[str, ...]
    marks: Marks = field(default_factory=lambda: NO_MARKS)

    @abstractmethod
    def content(self) -> tuple[NDArray[Any], str]:
        """The samples' values (n, ...), and what else is part of the data's identity."""

    def digest(self) -> str:
        """SHA-256 over values, labels, splits and what else is in `content`: the data's identity."""
        values, head = self.content()
        return arrays.digest((values, self.labels, *(self.splits[name] for name in SPLITS)), head)

    def shared(self) -> int:
        """How many samples have something in common with one of another part; see `splits.shared`."""
        return splits.shared(self.splits, first_equal(self.content()[0]), self.marks)


@dataclass(frozen=True, kw_only=True)
class Images(SplitSamples):
    """Images.

    pixels: uint8 or float32, (n, height, width) if grey, (n, height, width, 3) in colour. 0 is background (black),
        `peak` is full ink (white).
    peak: the pixel value of full ink (16 for digits, 255 for mnist, 1 for float32).
    """

    pixels: NDArray[np.uint8] | NDArray[np.float32]
    peak: int

    def content(self) -> tuple[NDArray[Any], str]:
        """See `SplitSamples.content`."""
        return self.pixels, str(self.peak)

    @property
    def channels(self) -> int:
        """The number of channels, 1 or 3."""
        return 1 if self.pixels.ndim == 3 else self.pixels.shape[3]

    def brightness(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel's pixels in the training split, with full ink as 1.

        The deviation of a constant channel is given as 1, since pixels are divided by it.
        """
        pixels: NDArray[Any] = self.pixels[self.splits["train"]]
        mean, std = [], []
        for channel in [pixels] if self.channels == 1 else np.moveaxis(pixels, 3, 0):
            values = channel / np.float64(self.peak)
            mean.append(float(values.mean()))
            std.append(float(values.std()) or 1.0)
        return tuple(mean), tuple(std)


@dataclass(frozen=True, kw_only=True)
class Vectors(SplitSamples):
    """Features, float64 (n, features)."""

    values: NDArray[np.float64]

    def content(self) -> tuple[NDArray[Any], str]:
        """See `SplitSamples.content`."""
        return self.values, ""
