"""Statistics over seeds: what is typical of them, with its 95 % interval.

A seed is the replicate. The steps of a run are not: they share its initial values, its data and its machine's mood.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ketscale.analysis.heavy import special

LEVEL = 0.95
# The columns of an effect with its interval.
EFFECT = ("effect", "low", "high")
# With fewer seeds there is no interval, so there is no verdict.
FEWEST = 3
# From this number of seeds on, the interval of the typical one assumes no distribution.
FREE_FROM = 15


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval (None with fewer than three seeds), in the values' unit.

    n: the seeds that it is from. outliers: how many more were excluded as such. freedom: the degrees of freedom of the
    interval; None for those that follow from these numbers.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    outliers: int = 0
    freedom: float | None = None

    def mapped(self, function: Callable[[float], float]) -> Estimate:
        """The estimate of a function that only rises, or only falls."""
        low, high = sorted(function(end) for end in (self.low, self.high) if end is not None) or (None, None)
        return replace(self, value=function(self.value), low=low, high=high)

    def inverse(self) -> Estimate:
        """The estimate of the inverse of a ratio."""
        return self.mapped(lambda ratio: 1 / ratio)

    def times(self, factor: float) -> Estimate:
        """The estimate of a multiple."""
        return self.mapped(lambda value: factor * value)


def columns(estimate: Estimate | None, *names: str) -> dict[str, float | None]:
    """The columns of an estimate: its value and the ends of its interval."""
    values = (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
    return dict(zip(names, values, strict=True))


def typical(values: Sequence[float], least: float = 0.0) -> Estimate | None:
    """What the typical one of some values is, one for each seed, with its interval; None without a value.

    Outliers are excluded and counted. Below 15 values it is their mean with Student's interval (Biometrika 6, 1, 1908);
    from 15 on their median, with the order statistics that the sign test gives (Thompson, Ann. Math. Stat. 7, 122, 1936),
    so that slow runs do little that are too many or too near to be outliers. docs/timing.md has its coverage.

    least: the least standard deviation that is accepted.
    """
    inner = sorted(inliers(values))
    n, outliers = len(inner), len(values) - len(inner)
    if n == 0:
        return None
    centre = statistics.fmean(inner) if n < FREE_FROM else statistics.median(inner)
    if n < FEWEST:
        return Estimate(centre, None, None, n)
    free = n >= FREE_FROM
    half = exceeded((1 - LEVEL) / 2, n - 1) * max(least, 0.0 if free else spread(inner)) / math.sqrt(n)
    # As many lie below the interval of a median as the sign test allows; the shown median is inside in any case.
    below = math.floor(float(special.bdtrik((1 - LEVEL) / 2, n, 0.5))) if free else (n - 1) // 2
    low, high = min(centre - half, inner[below]), max(centre + half, inner[-1 - below])
    return Estimate(centre, low, high, n, outliers)


def spread(values: Sequence[float]) -> float:
    """The standard deviation of values, whatever their order."""
    # A tenth of the time of `statistics.stdev`.
    centre = statistics.fmean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def inliers(values: Sequence[float], tail: float | None = None) -> list[float]:
    """The values without outliers by the generalised ESD test (Rosner, Technometrics 25, 165, 1983).

    Up to a third of the values can be outliers; of three values none is. The test is at 0.1 % where the interval of the
    rest would be too narrow after a false one, at 1 % where their median does not mind.

    tail: another level of the test.
    """
    tail = tail or (0.01 if len(values) >= FREE_FROM else 0.001)
    rest, inner = list(values), list(values)
    for _ in range(len(values) // 3 if len(values) > FEWEST else 0):
        n, centre, deviation = len(rest), statistics.fmean(rest), spread(rest)
        farthest = max(rest, key=lambda value: abs(value - centre))
        quantile = exceeded(tail / (2 * n), n - 2)
        limit = (n - 1) * quantile / math.sqrt(n * (n - 2 + quantile**2))
        rest.remove(farthest)
        if abs(farthest - centre) > limit * deviation:
            inner = list(rest)
    return inner


def exceeded(tail: float, freedom: float) -> float:
    """The value that Student's t with so many degrees of freedom exceeds with probability `tail`."""
    # Not scipy.stats, whose import takes four times as long.
    return -float(special.stdtrit(freedom, tail))
