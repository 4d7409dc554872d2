"""A straight line, a power or an exponential through the points of a sweep."""

from __future__ import annotations

import math
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


@dataclass(frozen=True)
class Growth:
    """y ~ x**rate, or y ~ rate**x if exponential, by least squares of log y, with the share of variance explained."""

    exponential: bool
    rate: float
    r2: float


def fit_growth(x: Sequence[float], y: Sequence[float]) -> Growth | None:
    """The power or the exponential, whichever explains positive y better; None with fewer than three different x."""
    logs = [math.log(value) for value in y]
    power, exponential = fit_line([math.log(value) for value in x], logs), fit_line(x, logs)
    if power is None or exponential is None:
        return None
    if exponential.r2 > power.r2:
        return Growth(True, math.exp(exponential.slope), exponential.r2)
    return Growth(False, power.slope, power.r2)
