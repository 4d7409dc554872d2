"""A log-linear law of sizes, fitted to what runs cost, and the intervals that its residuals give.

The logarithm of a cost has a level for each name and an exponent for each number, found by ridge regression in its dual
form (T. Hastie, R. Tibshirani and J. Friedman, The Elements of Statistical Learning, 2009, section 3.4.1 and exercise 7.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ketscale.jobs.costs.records import Case
from ketscale.words import duration

# Standard deviations of an interval that too few points tell of: 95 % of a t-distribution of 3 degrees of freedom are
# within 3.2.
_COVERAGE, _UNCALIBRATED = 0.9, 3.2
# The standard deviation of the logarithm of a cost between runs of one point, before there are data. The others are in units
# of it: how much the level varies, what a name adds to it, and what a point adds; and the exponent of a number for all runs,
# for those of a model with its simulator, and for those of a backend on a machine.
_NOISE = 0.1
_LEVEL, _NAME, _POINT, _ALL, _OWN, _WHERE = 30.0, 5.0, 2.0, 7.0, 5.5, 4.0


@dataclass(frozen=True)
class Interval:
    """An expected value, and the ends of its 90 % interval."""

    middle: float
    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        """The sum, whose ends are those of values that err together."""
        return Interval(self.middle + other.middle, self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Interval:
        """A multiple."""
        return Interval(self.middle * factor, self.low * factor, self.high * factor)


def total(intervals: Iterable[Interval]) -> Interval:
    """The sum of all, as an interval for the case that all err to the same side."""
    return sum(intervals, Interval(0.0, 0.0, 0.0))


def between(time: Interval) -> str:
    """A time in seconds with its interval, in words."""
    middle, low, high = (duration(seconds, 2) for seconds in (time.middle, time.low, time.high))
    return f"{middle} ({low} to {high})"


class Law:
    """One cost at some points, and what follows for others."""

    def __init__(self, cases: Sequence[Case], costs: Sequence[Sequence[float]]) -> None:
        """costs: those of the runs of each case."""
        logs = np.array([np.log(of).mean() for of in costs])
        names = sorted({name for case in cases for name in case.numbers})
        self._centre = {
            name: float(np.median([case.numbers.get(name, 0.0) for case in cases])) for name in names
        }
        features = [self._features(case) for case in cases]
        self._columns = {
            key: i for i, key in enumerate(dict.fromkeys(key for each in features for key in each))
        }
        self._rows = np.array([self._row(each) for each in features])
        noise = np.diag([1 / len(of) for of in costs])
        self._inverse = np.linalg.inv(self._rows @ self._rows.T + noise)
        self._mean = float(np.median(logs))
        self._weights = self._inverse @ (logs - self._mean)
        # The residual of each point by the law of all others, over its standard deviation (exercise 7.3).
        residuals = np.sort(np.abs(self._weights) / np.sqrt(np.diag(self._inverse)))
        place = math.ceil(_COVERAGE * (len(cases) + 1)) - 1
        self._factor = (
            float(residuals[place]) if place < len(cases) else max(_UNCALIBRATED * _NOISE, residuals[-1])
        )

    def interval(self, case: Case) -> Interval:
        """The cost of a run of a case."""
        features = self._features(case)
        across = self._rows @ self._row(features)
        middle = self._mean + across @ self._weights
        variance = 1 + sum(value**2 for value in features.values()) - across @ self._inverse @ across
        half = self._factor * math.sqrt(variance)
        return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))

    def _features(self, case: Case) -> dict[object, float]:
        """What the logarithm of a case's cost is linear in, each over the standard deviation of its coefficient."""
        names = case.names
        found: dict[object, float] = {"level": _LEVEL, ("point", case.point): _POINT}
        found |= dict.fromkeys(names.items(), _NAME)
        for name, centre in self._centre.items():
            number = case.numbers.get(name, 0.0) - centre
            found[name] = _ALL * number
            found[name, names["model"], names["simulator"]] = _OWN * number
            found[name, names["backend"], names["machine"]] = _WHERE * number
        return found

    def _row(self, features: Mapping[object, float]) -> NDArray[np.float64]:
        """The features that the law knows, by their columns."""
        row = np.zeros(len(self._columns))
        for key in features.keys() & self._columns.keys():
            row[self._columns[key]] = features[key]
        return row
