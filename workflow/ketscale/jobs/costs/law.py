"""A power law of sizes, fitted to what runs cost, and the intervals that it gives.

The logarithm of a cost is regressed on the cases with a fixed covariance (C. E. Rasmussen and C. K. I. Williams, Gaussian
Processes for Machine Learning, 2006, eqs. 2.25 and 2.26; eq. 5.12 for what is left out). The records calibrate its
intervals (A. N. Angelopoulos and S. Bates, arXiv:2107.07511, section 2.1): groups of them are predicted from the others,
and an interval is as many standard deviations wide as 90 % of the groups needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.jobs.costs.records import Case
from ketscale.words import duration

Array = NDArray[np.float64]

_COVERAGE = 0.9
# Standard deviations of an interval that too few groups calibrate: 95 % of a t-distribution of 3 degrees of freedom
# are within 3.2.
_UNCALIBRATED = 3.2
# Variances of the logarithm of a cost before there are data: a level; a level for each name; exponents of all, of a model
# with its simulator, and of a backend or a machine.
_LEVEL, _NAME, _ALL, _OWN, _WHERE = 9.0, 0.25, 0.5, 0.3, 0.15
# The variance between runs of one point, and how many differences between such runs it counts for; and that between a
# point and the law.
_NOISE, _SEEN, _OFF = 0.01, 3, 0.04


@dataclass(frozen=True)
class Interval:
    """An expected value, and the ends of its 90 % interval."""

    middle: float
    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        """The sum, whose ends are those of values that err together."""
        return Interval(self.middle + other.middle, self.low + other.low, self.high + other.high)

    def minus(self, part: Interval) -> Interval:
        """What is left without a part, whose values err together with these."""
        return Interval(self.middle - part.middle, self.low - part.low, self.high - part.high)

    def less(self, amount: float) -> Interval:
        """What is left of a value of which an amount is spent."""
        return Interval(*(max(0.0, value - amount) for value in (self.middle, self.low, self.high)))

    def times(self, factor: float) -> Interval:
        """A multiple."""
        return Interval(self.middle * factor, self.low * factor, self.high * factor)


NOTHING = Interval(0.0, 0.0, 0.0)


def total(intervals: Iterable[Interval]) -> Interval:
    """The sum of all, as an interval for the case that all err to the same side."""
    return sum(intervals, NOTHING)


def between(time: Interval) -> str:
    """A time in seconds with its interval, in words."""
    middle, low, high = (duration(seconds, 2) for seconds in (time.middle, time.low, time.high))
    return f"{middle} ({low} to {high})"


class Law:
    """One cost at some points, and what follows for others."""

    def __init__(self, cases: Sequence[Case], costs: Sequence[Sequence[float]]) -> None:
        """costs: those of the runs of each case."""
        logs = [np.log(of) for of in costs]
        counts = np.array([len(of) for of in logs])
        differences = _SEEN + counts.sum() - len(counts)
        self._noise = (_SEEN * _NOISE + sum(float(of.var() * len(of)) for of in logs)) / differences
        self._axes = sorted({name for case in cases for name in case.numbers})
        self._middle = np.median(self._numbers(cases), axis=0)
        self._cases = cases
        self._inverse = np.linalg.inv(self._covariance(cases, cases) + np.diag(self._noise / counts))
        means = np.array([of.mean() for of in logs])
        self._mean = float(np.median(means))
        self._weights = self._inverse @ (means - self._mean)
        self._factors = {beyond: self._calibrated(left_out(cases, beyond)) for beyond in (False, True)}

    def intervals(self, cases: Sequence[Case], beyond: Sequence[bool]) -> list[Interval]:
        """The cost of a run of each case. beyond: whether it is outside the range of what is known."""
        across = self._covariance(cases, self._cases)
        squares = ((self._numbers(cases) - self._middle) ** 2).sum(1)
        own = _LEVEL + _NAME * len(cases[0].names) + squares * (_ALL + _OWN + 2 * _WHERE) + _OFF
        variances = own - (across @ self._inverse * across).sum(1)
        middles = self._mean + across @ self._weights
        halves = np.sqrt(np.maximum(variances, 0.0) + self._noise) * [self._factors[each] for each in beyond]
        return [Interval(*row) for row in np.exp([middles, middles - halves, middles + halves]).T.tolist()]

    def _calibrated(self, groups: Sequence[Sequence[int]]) -> float:
        """How many standard deviations wide intervals are: the conformal quantile of groups with a vote each."""
        scores: list[tuple[float, float]] = []
        for rows in groups:
            covariance = np.linalg.inv(self._inverse[np.ix_(rows, rows)])
            off = np.abs(covariance @ self._weights[rows]) / np.sqrt(np.diag(covariance))
            scores += [(score, 1 / len(rows)) for score in off.tolist()]
        left = math.ceil(_COVERAGE * (len(groups) + 1)) - 1e-9
        for score, vote in sorted(scores):
            left -= vote
            if left <= 0:
                return score
        return max([_UNCALIBRATED, *(score for score, _ in scores)])

    def _numbers(self, cases: Sequence[Case]) -> Array:
        return np.array([[case.numbers.get(name, 0.0) for name in self._axes] for case in cases])

    def _covariance(self, ones: Sequence[Case], others: Sequence[Case]) -> Array:
        """The covariance of the logarithm between cases, (m, n): levels, exponents, and what is special to a point."""
        x, y = self._numbers(ones) - self._middle, self._numbers(others) - self._middle
        alike = np.zeros((len(ones), len(others)))
        same: dict[str, Any] = {}
        for name in ones[0].names:
            codes = [np.array([hash(case.names[name]) for case in of]) for of in (ones, others)]
            same[name] = codes[0][:, None] == codes[1]
            alike += same[name]
        own, where = same["model"] & same["simulator"], same["backend"] + same["machine"].astype(float)
        points = [np.array([hash(case.point) for case in of]) for of in (ones, others)]
        law = _LEVEL + _NAME * alike + x @ y.T * (_ALL + _OWN * own + _WHERE * where)
        return np.asarray(law + _OFF * (points[0][:, None] == points[1]))


def left_out(cases: Sequence[Case], beyond: bool) -> list[list[int]]:
    """Groups of cases, as their numbers, to predict from all the others; none is listed twice.

    Within the others: every cell, which is a model's size in a layout at all batches with all simulators. Beyond them: of
    a model with its simulator, the cases with the least and with the largest value of each number.
    """
    groups: dict[object, list[int]] = {}
    for i, case in enumerate(cases):
        size = tuple(sorted((name, value) for name, value in case.numbers.items() if name != "batch"))
        cell = (case.names["backend"], size) if not beyond else case.names["simulator"]
        groups.setdefault((case.names["model"], cell), []).append(i)
    if beyond:
        groups = {
            (key, name, end): [i for i in rows if cases[i].numbers[name] == end]
            for key, rows in groups.items()
            for name in cases[rows[0]].numbers
            for end in _ends([cases[i].numbers[name] for i in rows])
        }
    return [[*rows] for rows in dict.fromkeys(map(tuple, groups.values())) if len(rows) < len(cases)]


def _ends(values: Sequence[float]) -> set[float]:
    """The least and the largest, unless all are equal."""
    return {min(values), max(values)} if min(values) < max(values) else set()
