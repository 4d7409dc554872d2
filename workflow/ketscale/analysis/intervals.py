"""Statistics over seeds: medians and ranges, means with 95 % intervals, ratios and differences paired by seed.

A seed is the replicate. The steps of a run are not: they share its initial values, its data and its machine's mood.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.95
# With fewer seeds there is no interval, so nothing is decided.
FEWEST = 3
# From this number of seeds on, the interval of the typical one assumes no distribution.
FREE_FROM = 15
BOOTSTRAP_FROM = 15
RESAMPLES = 9_999


@dataclass(frozen=True)
class Summary:
    """The median of some values with their range, in the values' unit."""

    median: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval (None with fewer than three seeds), in the values' unit.

    n: the seeds that it is from. outliers: how many more were left out as such.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    outliers: int = 0

    def inverse(self) -> Estimate:
        """The estimate of the inverse of a ratio."""
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return Estimate(1 / self.value, low, high, self.n, self.outliers)

    def times(self, factor: float) -> Estimate:
        """The estimate of a positive multiple."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return Estimate(factor * self.value, low, high, self.n, self.outliers)


def summarise(values: Sequence[float]) -> Summary | None:
    """Median, minimum and maximum of the values; None if there are none."""
    if not values:
        return None
    return Summary(statistics.median(values), min(values), max(values), len(values))


def mean(values: Sequence[float]) -> Estimate | None:
    """The mean of one value for each seed, with its interval; None without a value.

    Below 15 seeds: mean +- t_{0.975, n-1} sd / sqrt(n) (Student 1908). From 15 on: the bias-corrected and accelerated
    bootstrap (Efron, J. Am. Stat. Assoc. 82, 171, 1987), its level widened to the t-distribution's, without which it is too
    narrow for few values (Hesterberg, Am. Stat. 69, 371, 2015).
    """
    n = len(values)
    if n == 0:
        return None
    centre = statistics.fmean(values)
    if n < FEWEST:
        return Estimate(centre, None, None, n)
    quantile = exceeded((1 - LEVEL) / 2, n - 1)
    spread = statistics.stdev(values)
    # The bootstrap of equal values is undefined.
    if n < BOOTSTRAP_FROM or spread == 0:
        half = quantile * spread / math.sqrt(n)
        return Estimate(centre, centre - half, centre + half, n)
    return Estimate(centre, *_bootstrap(values, math.sqrt(n / (n - 1)) * quantile), n)


def typical(values: Sequence[float], least: float = 0.0) -> Estimate | None:
    """What the typical one of some values is, one for each seed, with its interval; None without a value.

    Below 15 values: the mean of those that are no outliers, with Student's interval (Biometrika 6, 1, 1908), which few
    values need. From 15 on: the median, with the order statistics that the sign test gives (Thompson, Ann. Math. Stat. 7,
    122, 1936); it assumes no distribution, so slow runs do not matter that are too many or too near to be outliers.

    least: the least standard deviation that is believed.
    """
    kept = inliers(values)
    n, outliers = len(values), len(values) - len(kept)
    if n == 0:
        return None
    if n < FEWEST:
        return Estimate(statistics.fmean(values), None, None, n)
    if n < FREE_FROM:
        n = len(kept)
        centre, deviation = statistics.fmean(kept), max(least, statistics.stdev(kept))
        half = exceeded((1 - LEVEL) / 2, n - 1) * deviation / math.sqrt(n)
        return Estimate(centre, centre - half, centre + half, n, outliers)
    ordered, centre, below = sorted(values), statistics.median(values), _below(n)
    half = exceeded((1 - LEVEL) / 2, n - 1) * least / math.sqrt(n)
    low, high = min(ordered[below], centre - half), max(ordered[n - 1 - below], centre + half)
    return Estimate(centre, low, high, n, outliers)


def _below(n: int) -> int:
    """How many of n values lie below the interval of their median, as many as the sign test allows."""
    from scipy.special import bdtrik

    return math.floor(float(bdtrik((1 - LEVEL) / 2, n, 0.5)))


def spread(values: Sequence[float]) -> float:
    """The standard deviation of the values that are no outliers."""
    return statistics.stdev(inliers(values))


def inliers(values: Sequence[float]) -> list[float]:
    """The values without outliers by the generalised ESD test at 1 % (Rosner, Technometrics 25, 165, 1983).

    Up to a third of the values can be outliers; of three values none is.
    """
    left, kept = list(values), list(values)
    for _ in range(len(values) // 3 if len(values) > FEWEST else 0):
        n, centre, deviation = len(left), statistics.fmean(left), statistics.stdev(left)
        farthest = max(left, key=lambda value: abs(value - centre))
        quantile = exceeded(0.01 / (2 * n), n - 2)
        limit = (n - 1) * quantile / math.sqrt(n * (n - 2 + quantile**2))
        left.remove(farthest)
        if abs(farthest - centre) > limit * deviation:
            kept = list(left)
    return kept


def ratio(ratios: Sequence[float]) -> Estimate | None:
    """The geometric mean of one positive ratio for each seed; its interval is that of the mean logarithm."""
    found = mean([math.log(value) for value in ratios])
    if found is None:
        return None
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Estimate(math.exp(found.value), low, high, found.n)


def paired_ratio(
    reference: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]], column: str = "step_s"
) -> Estimate | None:
    """baseline / value of a column, seed by seed, over pairs of runs on the same kind of host; None without a pair.

    reference: the runs of the baseline.
    """
    values = {(row["seed"], row["hardware"]): row[column] for row in reference}
    pairs = [(values.get((row["seed"], row["hardware"])), row[column]) for row in rows]
    return ratio([first / second for first, second in pairs if first and second])


def paired_difference(values: Mapping[int, float], control: Mapping[int, float]) -> Estimate | None:
    """The mean of a_s - b_s over the seeds s that both have; None without such a seed."""
    return mean([values[seed] - control[seed] for seed in sorted(set(values) & set(control))])


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` samples (Wilson, J. Am. Stat. Assoc. 22, 209)."""
    from scipy.special import ndtri

    square = float(ndtri((1 + LEVEL) / 2)) ** 2 / count
    share = right / count
    centre, spread = share + square / 2, math.sqrt(square * (share * (1 - share) + square / 4))
    return max(0.0, (centre - spread) / (1 + square)), min(1.0, (centre + spread) / (1 + square))


def exceeded(tail: float, freedom: float) -> float:
    """The value that Student's t with so many degrees of freedom exceeds with probability `tail`."""
    # Not scipy.stats, whose import takes four times as long.
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, tail))


def _bootstrap(values: Sequence[float], deviations: float) -> tuple[float, float]:
    """The interval of a mean at the level that a normal distribution has within so many standard deviations."""
    import numpy as np
    from scipy.stats import bootstrap, norm

    found = bootstrap(
        (np.asarray(values),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=1 - 2 * float(norm.sf(deviations)),
        method="BCa",
        # The same interval for the same values.
        rng=np.random.default_rng(0),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
