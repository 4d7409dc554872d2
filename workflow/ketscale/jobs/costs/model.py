"""The cost model: what runs cost by their case, and how sure that is.

Each cost is a Gaussian process of its own over the cases (`features.Covariance`). Its intervals are calibrated by the records
themselves (A. N. Angelopoulos and S. Bates, arXiv:2107.07511, section 2.1, with residuals as in R. F. Barber et al.,
arXiv:1905.02928): groups of records are predicted from the others, and an interval is as many standard deviations wide
as 90 % of these predictions needed. Like is calibrated by like: runs that differ from a record only in their seed, runs
within the range of the records, and runs beyond it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ketscale.jobs.costs.features import USUAL, Case, Covariance
from ketscale.jobs.costs.interval import Interval
from ketscale.jobs.costs.regression import Array, Fit, fit, variances
from ketscale.jobs.costs.samples import Sample

COVERAGE = 0.9
# repeat: a record differs only in the seed. within: records of such runs have smaller and larger values of every number,
# or equal ones. beyond: the others.
Place = Literal["repeat", "within", "beyond"]
PLACES: tuple[Place, ...] = ("repeat", "within", "beyond")

# Standard deviations of an interval that too few groups calibrate: 95 % of a t-distribution of 3 degrees of freedom
# are within 3.2. (The usual variances in `features` are wide.)
_UNCALIBRATED = 3.2
# Variances are found from so many samples at most, and predictions made from so many, since both take n^3 operations.
_FITTED, _MOST = 300, 600

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class _Cost:
    """One cost's process: the samples that have it, and its fit."""

    rows: Rows
    fit: Fit


@dataclass(frozen=True)
class Guess:
    """What is known of a case: logarithms of the costs with their standard deviations, and where the case is."""

    costs: dict[str, tuple[float, float]]
    place: Place


class CostModel:
    """What runs cost, learned from samples; `predict` knows nothing of a case that is like none of them."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.samples = _some(list(samples))
        self.cases = [sample.case for sample in self.samples]
        self._near = _ranges(self.cases)
        self._costs: dict[str, _Cost] = {}
        if self.samples:
            self._map = Map(self.cases)
            # Matrices of a few hundred rows: on a shared machine, threads that wait for each other cost far more.
            with threadpool_limits(1):
                self._learn()

    def _learn(self) -> None:
        """Fit every cost, and calibrate its intervals."""
        self._covariance = Covariance(self.cases)
        self._parts = self._covariance.among
        for name in sorted({name for sample in self.samples for name in sample.costs}):
            self._costs[name] = self._fitted(name)
        self._factors = self._calibrated()

    def _fitted(self, name: str) -> _Cost:
        rows = np.array([i for i, sample in enumerate(self.samples) if name in sample.costs])
        values = np.log([self.samples[i].costs[name] for i in rows])
        some = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _FITTED)).astype(int))
        few = [part[np.ix_(rows[some], rows[some])] for part in self._parts]
        sizes = variances(values[some], few, USUAL)
        return _Cost(rows, fit(values, [part[np.ix_(rows, rows)] for part in self._parts], sizes))

    def knows(self, case: Case) -> bool:
        """Whether records have the case's model, simulator and backend, and numbers that are near enough.

        A case is too far if a number is more than one grid of a study beyond them (see `features`): eight times the
        batch, four times the ranks, or four qubits.
        """
        near = self._near.get(case.known)
        if near is None:
            return False
        low, high = near
        names = case.numbers.keys() | low.keys()
        return all(
            low.get(name, 0.0) - 1 <= case.numbers.get(name, 0.0) <= high.get(name, 0.0) + 1 for name in names
        )

    def place(self, case: Case) -> Place:
        """The place of a case; beyond the samples if there are none."""
        return self._map.place(case) if self.samples else "beyond"

    def guess(self, cases: Sequence[Case]) -> list[Guess]:
        """What is known of these cases, of which `knows` must hold; a cost that no record has is missing."""
        known, own = self._covariance.parts(cases), self._covariance.own(cases)
        found: list[dict[str, tuple[float, float]]] = [{} for _ in cases]
        for name, cost in self._costs.items():
            across = [part[:, cost.rows] for part in known]
            for costs, middle, spread in zip(found, *cost.fit.predict(across, own), strict=True):
                costs[name] = float(middle), float(spread)
        return [Guess(costs, self._map.place(case)) for costs, case in zip(found, cases, strict=True)]

    def interval(self, guess: Guess, name: str) -> Interval:
        """The interval of a cost."""
        middle, spread = guess.costs[name]
        return _interval(middle, spread, self._factors[name][guess.place])

    def wall(self, guess: Guess, steps: int, epochs: int | None) -> Interval:
        """The interval of the wall time in seconds of a run of so many steps and epochs."""
        return _interval(*wall(guess.costs, steps, epochs), self._factors["wall_s"][guess.place])

    def _calibrated(self) -> dict[str, dict[Place, float]]:
        """How many standard deviations wide the intervals are, by cost and place."""
        scores: dict[str, dict[Place, dict[int, list[float]]]] = {
            name: {place: {} for place in PLACES} for name in (*self._costs, "wall_s")
        }
        for number, rows in enumerate(left_out(self.cases)):
            found: dict[int, dict[str, tuple[float, float]]] = {int(row): {} for row in rows}
            for name, cost in self._costs.items():
                own = np.flatnonzero(np.isin(cost.rows, rows))
                for i, off, spread in zip(own, *cost.fit.left_out(own), strict=True):
                    row = int(cost.rows[i])
                    found[row][name] = math.log(self.samples[row].costs[name]) - off, spread
            for row in rows:
                sample, costs = self.samples[row], found[int(row)]
                at = self._map.place(sample.case, rows)
                seen = {name: (math.log(sample.costs[name]), *costs[name]) for name in costs}
                seen["wall_s"] = math.log(sample.wall_s), *wall(costs, sample.steps, sample.epochs)
                for name, (value, middle, spread) in seen.items():
                    scores[name][at].setdefault(number, []).append(abs(value - middle) / spread)
        return {name: {at: _factor(groups) for at, groups in of.items()} for name, of in scores.items()}


def _ranges(cases: Sequence[Case]) -> dict[tuple[str, ...], tuple[dict[str, float], dict[str, float]]]:
    """The least and the largest of every number of the cases that know of each other."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(case.known, []).append(case)
    found = {}
    for known, group in groups.items():
        names = {name for case in group for name in case.numbers}
        values = {name: [case.numbers.get(name, 0.0) for case in group] for name in names}
        found[known] = (
            {name: min(of) for name, of in values.items()},
            {name: max(of) for name, of in values.items()},
        )
    return found


def wall(costs: dict[str, tuple[float, float]], steps: int, epochs: int | None) -> tuple[float, float]:
    """The logarithm of a run's wall time and its standard deviation, to first order, from those of its costs."""
    terms = [("start_s", 1), ("pace_s", steps), *([("validation_s", epochs)] if epochs else [])]
    seconds = {name: number * math.exp(costs[name][0]) for name, number in terms if name in costs}
    total = sum(seconds.values())
    return math.log(total), math.hypot(*(seconds[name] * costs[name][1] for name in seconds)) / total


def _some(samples: Sequence[Sample]) -> list[Sample]:
    """As many samples as can be used: one of each point, drawn at random if these are too many, then a second, ..."""
    drawn = random.Random(0).sample(samples, len(samples))
    seeds: Counter[str] = Counter()
    ranks = []
    for sample in drawn:
        ranks.append(seeds[sample.case.point])
        seeds[sample.case.point] += 1
    order = sorted(range(len(drawn)), key=lambda i: ranks[i])[:_MOST]
    return [drawn[i] for i in order]


class Map:
    """The places of cases among known ones.

    known: (n,) of them; the number of the known case itself is given to `place`, or a case that is not among them.
    """

    def __init__(self, known: Sequence[Case]) -> None:
        self.axes = sorted({name for case in known for name in case.numbers})
        self.values = np.array([self._numbers(case) for case in known])
        self.names = np.array([hash(tuple(case.names.items())) for case in known])
        self.points = np.array([hash(case.point) for case in known])

    def place(self, case: Case, but: Rows | None = None) -> Place:
        """The place of a case, seen from the known ones except those of the numbers `but`."""
        like = self.names == hash(tuple(case.names.items()))
        if but is not None:
            like[but] = False
        if not like.any():
            return "beyond"
        if (self.points[like] == hash(case.point)).any():
            return "repeat"
        values, numbers = self.values[like], self._numbers(case)
        inside = (values.min(0) <= numbers) & (numbers <= values.max(0))
        return "within" if inside.all() and case.numbers.keys() <= set(self.axes) else "beyond"

    def _numbers(self, case: Case) -> Array:
        return np.array([case.numbers.get(name, 0.0) for name in self.axes])


def left_out(cases: Sequence[Case]) -> list[Rows]:
    """Groups of cases, as their numbers, to predict from all the others.

    Every case of a point that has others; every cell, which is a model's size in a layout at all batches; and of cases
    that are alike, those with the least and with the largest value of each number. No group is listed twice.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    points: dict[str, list[int]] = {}
    for i, case in enumerate(cases):
        groups.setdefault(("cell", *cell(case)), []).append(i)
        points.setdefault(case.point, []).append(i)
    for alike in dict.fromkeys(case.alike for case in cases):
        rows = [i for i, case in enumerate(cases) if case.alike == alike]
        for name in cases[rows[0]].numbers:
            values = [cases[i].numbers.get(name, 0.0) for i in rows]
            for end in {min(values), max(values)} if min(values) < max(values) else ():
                groups["end", alike, name, end] = [
                    i for i, value in zip(rows, values, strict=True) if value == end
                ]
    groups |= {("seed", i): [i] for rows in points.values() if len(rows) > 1 for i in rows}
    return [np.array(rows) for rows in dict.fromkeys(map(tuple, groups.values())) if len(rows) < len(cases)]


def cell(case: Case) -> tuple[object, ...]:
    """What cases of one model's size in one layout share, whatever their batch and simulator."""
    numbers = tuple(sorted((name, value) for name, value in case.numbers.items() if name != "batch"))
    return case.names["model"], numbers, case.names["backend"]


def _factor(groups: dict[int, list[float]]) -> float:
    """The conformal quantile of the scores of groups, each of which has one vote."""
    scores = [(score, 1 / len(group)) for group in groups.values() for score in group]
    votes = math.ceil(COVERAGE * (len(groups) + 1))
    if votes > len(groups):
        return max([_UNCALIBRATED, *(score for score, _ in scores)])
    counted = 0.0
    for score, weight in sorted(scores):
        counted += weight
        if counted >= votes - 1e-9:
            return score
    return max(score for score, _ in scores)


def _interval(middle: float, spread: float, factor: float) -> Interval:
    return Interval(math.exp(middle), math.exp(middle - factor * spread), math.exp(middle + factor * spread))
