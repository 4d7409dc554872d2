"""Statistics over seeds: medians and ranges, ratios and differences paired by seed, binomial intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Summary:
    """The median of some values with their range, in the values' unit."""

    median: float
    low: float
    high: float
    n: int


def summarise(values: Sequence[float]) -> Summary | None:
    """Median, minimum and maximum of the values; None if there are none."""
    if not values:
        return None
    return Summary(statistics.median(values), min(values), max(values), len(values))


def paired_ratio(reference: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> Summary | None:
    """t_baseline / t (step times), seed by seed, over pairs of runs on the same kind of host; None without a pair.

    reference: the runs of the baseline.
    """
    times = {(row["seed"], row["hardware"]): row["step_s"] for row in reference}
    pairs = [(times.get((row["seed"], row["hardware"])), row["step_s"]) for row in rows]
    return summarise([first / second for first, second in pairs if first and second])


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its 95 % interval (None with fewer than two pairs), in the values' unit."""

    mean: float
    low: float | None
    high: float | None
    n: int


def paired_difference(values: Mapping[int, float], control: Mapping[int, float]) -> Difference | None:
    """mean(a_s - b_s) +- t_{0.975, n-1} sd / sqrt(n) over the seeds s that both have (Student 1908)."""
    differences = [values[seed] - control[seed] for seed in sorted(set(values) & set(control))]
    if not differences:
        return None
    mean, n = statistics.fmean(differences), len(differences)
    if n < 2:
        return Difference(mean, None, None, n)
    from scipy.stats import t

    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(differences) / math.sqrt(n)
    return Difference(mean, mean - half, mean + half, n)


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` samples (Wilson, J. Am. Stat. Assoc. 22, 209)."""
    from scipy.stats import binomtest

    interval = binomtest(right, count).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
