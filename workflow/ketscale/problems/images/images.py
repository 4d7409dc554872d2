"""Labelled images with their split, the form of every data set of the family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.problems import splits
from ketscale.problems.vectors.vectors import SplitSamples


def first_equal(values: NDArray[Any]) -> NDArray[np.int64]:
    """`splits.first_equal` of images, as the network sees them.

    Pixels from 0 to 1 are equal up to single precision's step at 1, since brightness is taken from them.
    """
    if values.dtype.kind == "f":
        values = np.rint(values / np.finfo(np.float32).eps).astype(np.int32)
    return splits.first_equal(values)


@dataclass(frozen=True, kw_only=True)
class Images(SplitSamples):
    """Labelled images.

    labels: int64 (n,), indices into `classes`, which are their names.
    pixels: uint8 or float32, (n, height, width) if grey, (n, height, width, 3) in colour. 0 is background (black),
        `peak` is full ink (white).
    peak: the pixel value of full ink (16 for digits, 255 for mnist, 1 for float32).
    """

    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    pixels: NDArray[np.uint8] | NDArray[np.float32]
    peak: int

    def content(self) -> tuple[NDArray[Any], NDArray[Any], str]:
        """See `SplitSamples.content`."""
        return self.pixels, self.labels, str(self.peak)

    def equal(self) -> NDArray[np.int64]:
        """See `SplitSamples.equal`."""
        return first_equal(self.pixels)

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
