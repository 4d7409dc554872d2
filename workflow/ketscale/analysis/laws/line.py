"""A straight line through the points of a sweep."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """y = intercept + slope * x by least squares, with the share of variance explained."""

    intercept: float
    slope: float
    r2: float


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """The least-squares line; None with fewer than three different x, which some line always fits."""
    if len(set(x)) < 3:
        return None
    slope, intercept = statistics.linear_regression(x, y)
    mean = statistics.fmean(y)
    total = sum((v - mean) ** 2 for v in y)
    rest = sum((v - intercept - slope * u) ** 2 for u, v in zip(x, y, strict=True))
    return Line(intercept, slope, 1 - rest / total if total else 1.0)
