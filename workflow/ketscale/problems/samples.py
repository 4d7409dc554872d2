"""Samples with their targets and their split, the form of every data set that is learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.problems import arrays, splits
from ketscale.problems.columns import Column
from ketscale.problems.splits import NO_MARKS, SPLITS, Marks, Parts


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Samples as the data set stores them.

    values: features (n, features), float64; pixels (n, height, width) if grey, (n, height, width, 3) in colour,
        uint8; or trials (n, channels, steps), float32.
    targets: int64 (n,), indices into `names`, which are those of the classes; or, of a regression, float64 (n, columns),
        whose names `names` are.
    folds: the int64 indices of the samples in train, validation and test, which are disjoint; several where each of some
        recordings is the test once.
    marks: the things that samples have in common besides equal values, such as groups or steps.
    groups: by name, such as subjects or runs, the group of each sample, int64 (n,).
    columns: those of a table that features were made of.
    peak: of pixels the value of full ink, which is white (16 for digits, else 255), where 0 is black.
    """

    values: NDArray[Any]
    targets: NDArray[Any]
    names: tuple[str, ...]
    folds: Sequence[Parts] = ()
    marks: Marks = field(default_factory=lambda: NO_MARKS)
    groups: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    peak: int | None = None

    @property
    def splits(self) -> Parts:
        """The first fold."""
        return self.folds[0]

    def digest(self) -> str:
        """SHA-256 over values, targets, splits and the peak: the data's identity."""
        parts = (self.values, self.targets, *(self.splits[name] for name in SPLITS))
        return arrays.digest(parts, "" if self.peak is None else str(self.peak))

    def shared(self) -> list[int]:
        """How many samples of each fold have something in common with one of another part; see `splits.shared`."""
        equal = first_equal(self.values)
        return [splits.shared(fold, equal, self.marks) for fold in self.folds]


def first_equal(values: NDArray[Any]) -> NDArray[np.int64]:
    """`splits.first_equal` of samples (`Samples`), as a model sees them: features as by `first_equal_features`."""
    return (splits.first_equal_features if values.dtype == np.float64 else splits.first_equal)(values)
