"""Three simpler models of costs, for `judged_costs`: each learns logarithms of costs and calibrates its intervals alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ketscale.jobs.costs.features import Case
from ketscale.jobs.costs.interval import Interval
from ketscale.jobs.costs.model import Map, Place, _factor, _ranges, left_out
from ketscale.jobs.costs.samples import Sample

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

COSTS = ("step_s", "pace_s", "start_s", "memory_bytes")


class Known:
    """What is near enough to some samples to be predicted, and where it is."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        cases = [sample.case for sample in samples]
        self._near, self._map = _ranges(cases), Map(cases)

    def knows(self, case: Case) -> bool:
        near = self._near.get(case.known)
        names = case.numbers.keys() | (near[0].keys() if near else set())
        return near is not None and all(
            near[0].get(name, 0.0) - 1 <= case.numbers.get(name, 0.0) <= near[1].get(name, 0.0) + 1
            for name in names
        )

    def place(self, case: Case, but: Rows | None = None) -> Place:
        return self._map.place(case, but)


class Columns:
    """Cases as rows: numbers around their middle, and a column for each name that was seen."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.numbers = sorted({name for case in cases for name in case.numbers})
        self.seen = sorted({pair for case in cases for pair in case.names.items()})
        self.alike = list(dict.fromkeys(case.alike for case in cases))
        self.backends = sorted({case.names["backend"] for case in cases})
        self.middle = np.median([self.row(case) for case in cases], axis=0)

    def row(self, case: Case) -> list[float]:
        return [case.numbers.get(name, 0.0) for name in self.numbers]

    def scaled(self, cases: Sequence[Case]) -> Array:
        return np.array([self.row(case) for case in cases]) - self.middle

    def names(self, cases: Sequence[Case]) -> Array:
        return np.array(
            [[float(case.names.get(name) == value) for name, value in self.seen] for case in cases]
        )

    def slopes(self, cases: Sequence[Case], groups: Sequence[object], of: Callable[[Case], object]) -> Array:
        """Each number once for each group."""
        x, own = self.scaled(cases), [of(case) for case in cases]
        return np.hstack([x * np.array([[float(one == group)] for one in own]) for group in groups])


def logs(samples: Sequence[Sample]) -> Array:
    """(n, costs)."""
    return np.log([[sample.costs[name] for name in COSTS] for sample in samples])


class Law:
    """A power law of sizes: a level for every name, exponents for all, for cases that are alike, and for backends.

    Ridge regression: the columns' scales are the standard deviations of their coefficients before there are data.
    """

    noise = 0.05

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.cases, y = [sample.case for sample in samples], logs(samples)
        self.columns = Columns(self.cases)
        self.x = self.design(self.cases)
        self.mean = np.median(y, axis=0)
        self.y = y - self.mean
        self.rest = np.ones(len(samples), dtype=bool)
        self.weights = self.solved(self.rest)

    def design(self, cases: Sequence[Case]) -> Array:
        of = self.columns
        parts = [
            (3.0, np.ones((len(cases), 1))),
            (0.7, of.scaled(cases)),
            (0.5, of.names(cases)),
            (0.55, of.slopes(cases, of.alike, lambda case: case.alike)),
            (0.4, of.slopes(cases, of.backends, lambda case: case.names["backend"])),
        ]
        return np.hstack([scale * part for scale, part in parts])

    def solved(self, rest: NDArray[np.bool_]) -> Array:
        x, y = self.x[rest], self.y[rest]
        if len(x) <= x.shape[1]:
            return np.asarray(x.T @ np.linalg.solve(x @ x.T + self.noise * np.eye(len(x)), y))
        return np.asarray(np.linalg.solve(x.T @ x + self.noise * np.eye(x.shape[1]), x.T @ y))

    def predict(self, cases: Sequence[Case]) -> Array:
        return np.asarray(self.mean + self.design(cases) @ self.weights)

    def left_out(self, rows: Rows) -> Array:
        rest = self.rest.copy()
        rest[rows] = False
        return np.asarray(self.mean + self.x[rows] @ self.solved(rest))


class Nearest(Law):
    """The nearest records, each scaled by the power law to the case: their mean, weighted by how near they are."""

    most, own = 4, 0.02

    def _near(self, cases: Sequence[Case], among: Rows, residuals: Array) -> Array:
        """The mean residuals of the nearest of some known cases, (m, costs)."""
        there = [self.cases[i] for i in among]
        x, y = self.columns.scaled(cases), self.columns.scaled(there)
        # Another name is as far as one grid.
        differ = np.array(
            [[sum(a.names[n] != b.names.get(n) for n in a.names) for b in there] for a in cases]
        )
        away = ((x[:, None] - y[None]) ** 2).sum(-1) + differ
        found = []
        for row in away:
            nearest = np.argsort(row, kind="stable")[: self.most]
            weights = 1 / (row[nearest] + self.own)
            # A residual far away says nothing of here.
            found.append((weights * np.exp(-row[nearest])) @ residuals[nearest] / weights.sum())
        return np.array(found)

    def predict(self, cases: Sequence[Case]) -> Array:
        every = np.arange(len(self.cases))
        return super().predict(cases) + self._near(cases, every, self.y - self.x @ self.weights)

    def left_out(self, rows: Rows) -> Array:
        rest = self.rest.copy()
        rest[rows] = False
        weights, among = self.solved(rest), np.flatnonzero(rest)
        near = self._near([self.cases[i] for i in rows], among, self.y[among] - self.x[among] @ weights)
        return np.asarray(self.mean + self.x[rows] @ weights + near)


class Learned:
    """scikit-learn's Gaussian process, for each cost: lines, smooth deviations wide and narrow, and noise."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

        self.cases, y = [sample.case for sample in samples], logs(samples)
        self.columns = Columns(self.cases)
        self.x = self.design(self.cases)
        kernel = (
            ConstantKernel(1.0) * DotProduct(1.0) + ConstantKernel(1.0) * RBF(2.0) + ConstantKernel(0.1) * RBF(0.5)
            + WhiteKernel(0.01, (1e-5, 1.0))
        )  # fmt: skip
        self.y = y
        self.fits = [GaussianProcessRegressor(kernel, normalize_y=True).fit(self.x, column) for column in y.T]
        self.inverses = []
        for fit in self.fits:
            half = np.linalg.inv(fit.L_)
            self.inverses.append(half.T @ half)

    def design(self, cases: Sequence[Case]) -> Array:
        return np.hstack([self.columns.scaled(cases), self.columns.names(cases) / 2])

    def predict(self, cases: Sequence[Case]) -> tuple[Array, Array]:
        found = [fit.predict(self.design(cases), return_std=True) for fit in self.fits]
        return np.array([middle for middle, _ in found]).T, np.array([spread for _, spread in found]).T

    def left_out(self, rows: Rows) -> tuple[Array, Array]:
        middles, spreads = [], []
        for fit, inverse, column in zip(self.fits, self.inverses, self.y.T, strict=True):
            covariance = np.linalg.inv(inverse[np.ix_(rows, rows)])
            off = covariance @ np.ravel(fit.alpha_)[rows] * fit._y_train_std
            middles.append(column[rows] - off)
            spreads.append(np.sqrt(np.diag(covariance)) * fit._y_train_std)
        return np.array(middles).T, np.array(spreads).T


def told(kind: Callable[[Sequence[Sample]], Law | Learned]) -> Callable[[Sequence[Sample]], Callable]:
    """A model whose intervals are as wide as 90 % of what was left out of its samples needed."""

    def learn(samples: Sequence[Sample]) -> Callable[[Sequence[Sample]], list[dict[str, Interval]]]:
        model, known = kind(samples), Known(samples)
        scores: dict[str, dict[Place, dict[int, list[float]]]] = {}
        for number, rows in enumerate(left_out(model.cases)):
            for row, at in zip(rows, _costs(model.left_out(rows), [samples[i] for i in rows]), strict=True):
                place = known.place(model.cases[row], rows)
                measured = {**samples[row].costs, "wall_s": samples[row].wall_s}
                for name, (middle, spread) in at.items():
                    score = abs(math.log(measured[name]) - middle) / spread
                    scores.setdefault(name, {}).setdefault(place, {}).setdefault(number, []).append(score)

        def tell(wanted: Sequence[Sample]) -> list[dict[str, Interval]]:
            found = []
            for sample, at in zip(
                wanted, _costs(model.predict([s.case for s in wanted]), wanted), strict=True
            ):
                place = known.place(sample.case)
                found.append({
                    name: _interval(middle, spread * _factor(scores[name].get(place, {})))
                    for name, (middle, spread) in at.items()
                })  # fmt: skip
            return found

        return tell

    return learn


def _costs(
    of: Array | tuple[Array, Array], samples: Sequence[Sample]
) -> list[dict[str, tuple[float, float]]]:
    """Logarithms and spreads of each cost and of the wall time, to first order."""
    middles, spreads = of if isinstance(of, tuple) else (of, np.ones_like(of))
    found = []
    for middle, spread, sample in zip(middles, spreads, samples, strict=True):
        at = {name: (float(middle[i]), float(spread[i])) for i, name in enumerate(COSTS)}
        seconds = {"start_s": math.exp(at["start_s"][0]), "pace_s": sample.steps * math.exp(at["pace_s"][0])}
        total = sum(seconds.values())
        whole = math.hypot(*(seconds[name] * at[name][1] for name in seconds)) / total
        at["wall_s"] = math.log(total), whole if isinstance(of, tuple) else 1.0
        found.append(at)
    return found


def _interval(middle: float, half: float) -> Interval:
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


ALL = {
    "power law": told(Law),
    "nearest, scaled": told(Nearest),
    "scikit-learn's Gaussian process": told(Learned),
}
