"""Samples with their split, and feature vectors with what is to be predicted of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.problems import arrays, splits
from ketscale.problems.columns import Column
from ketscale.problems.splits import NO_MARKS, SPLITS, Marks, Parts


@dataclass(frozen=True, kw_only=True)
class SplitSamples(ABC):
    """Samples as the data set stores them, with their split.

    splits: the int64 indices of the samples in train, validation and test, which are disjoint.
    marks: the things that samples have in common besides equal values, such as groups.
    """

    splits: Parts
    marks: Marks = field(default_factory=lambda: NO_MARKS)

    @abstractmethod
    def content(self) -> tuple[NDArray[Any], NDArray[Any], str]:
        """The values and the targets of the samples, both (n, ...), and what else is part of the data's identity."""

    @abstractmethod
    def equal(self) -> NDArray[np.int64]:
        """`splits.first_equal` of the samples, as a model sees them."""

    def digest(self) -> str:
        """SHA-256 over values, targets, splits and what else is in `content`: the data's identity."""
        *parts, head = self.content()
        return arrays.digest((*parts, *(self.splits[name] for name in SPLITS)), head)

    def shared(self) -> int:
        """How many samples have something in common with one of another part; see `splits.shared`."""
        return splits.shared(self.splits, self.equal(), self.marks)


@dataclass(frozen=True, kw_only=True)
class Vectors(SplitSamples):
    """Feature vectors.

    values: float64 (n, features). targets: int64 (n,), indices into `names`, which are those of the classes; or, of a
    regression, float64 (n, columns), whose names `names` are. columns: those of a table that the values were made of.
    """

    values: NDArray[np.float64]
    targets: NDArray[np.int64] | NDArray[np.float64]
    names: tuple[str, ...]
    columns: tuple[Column, ...] = ()

    def content(self) -> tuple[NDArray[Any], NDArray[Any], str]:
        """See `SplitSamples.content`."""
        return self.values, self.targets, ""

    def equal(self) -> NDArray[np.int64]:
        """See `SplitSamples.equal`."""
        return splits.first_equal_features(self.values)
