"""How often intervals of ratios of times hold the truth, by simulation: `python -m tests.unit.analysis.simulated_times`.

A folder has two pairs of points, whose runs vary by 0.5 % and by 10 %. One side of each takes 1.03 times as long. Where one run
in seven is slow, any run takes 1.2 to 3 times as long with that probability, or exactly one in seven of the slower side does.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ketscale.analysis import comparison
from ketscale.analysis.intervals import LEVEL, exceeded, typical

RATIO, NOISES, SEEDS = 1.03, (0.005, 0.1), (3, 5, 7, 30)
SLOW = ("none", "one run in seven", "one in seven of one side")
Interval = Callable[[Sequence[float], Sequence[Sequence[float]]], tuple[float, float]]


class Covered(NamedTuple):
    """How often an interval of a pair held the truth, and its median width in percent of the ratio."""

    share: float
    width: float


def of_package(own: Sequence[float], folder: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The interval of the package."""
    result = typical(own, comparison.pooled(folder))
    assert result is not None and result.low is not None and result.high is not None
    return result.low, result.high


def student(own: Sequence[float], folder: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The mean's by Student alone."""
    return _student(own, statistics.variance(own), len(own) - 1)


def moderated(own: Sequence[float], folder: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Student's with the variance drawn to the mean one of the folder, which counts as two degrees of freedom."""
    shared, freedom = statistics.fmean(map(statistics.variance, folder)), len(own) - 1
    return _student(own, (2 * shared + freedom * statistics.variance(own)) / (2 + freedom), 2 + freedom)


def _student(own: Sequence[float], variance: float, freedom: int) -> tuple[float, float]:
    half = exceeded((1 - LEVEL) / 2, freedom) * math.sqrt(variance / len(own))
    return statistics.fmean(own) - half, statistics.fmean(own) + half


def folders(seeds: int, slow: str, replicates: int) -> Iterator[list[list[float]]]:
    """The log ratios of each pair of a folder, again and again."""
    generator = np.random.default_rng([seeds, SLOW.index(slow)])
    for _ in range(replicates):
        yield [_ratios(generator, seeds, noise, slow) for noise in NOISES]


def _ratios(generator: np.random.Generator, seeds: int, noise: float, slow: str) -> list[float]:
    one, two = generator.normal(0.0, noise, (2, seeds))
    if slow == SLOW[1]:
        for side in (one, two):
            side += (generator.random(seeds) < 1 / 7) * np.log(generator.uniform(1.2, 3, seeds))
    elif slow == SLOW[2]:
        two[: max(1, seeds // 7)] += math.log(generator.uniform(1.2, 3))
    result: list[float] = (math.log(RATIO) + two - one).tolist()
    return result


def covered(method: Interval, seeds: int, slow: str, replicates: int) -> list[Covered]:
    """What the simulation says of each pair."""
    truth, result = math.log(RATIO), []
    samples = list(folders(seeds, slow, replicates))
    for pair in range(len(NOISES)):
        ends = [method(folder[pair], folder) for folder in samples]
        held = statistics.fmean(low <= truth <= high for low, high in ends)
        result.append(Covered(held, 100 * statistics.median(math.expm1(high - low) for low, high in ends)))
    return result


def table(replicates: int) -> Iterator[str]:
    """The table of docs/measurements/2026-11-intervals.csv, of which docs/timing.md shows a part."""
    methods: dict[str, Interval] = {"ours": of_package, "Student": student, "moderated": moderated}
    names = [f"{name}, noise {100 * noise:g} % (width)" for name in methods for noise in NOISES]
    yield f"| slow runs | seeds | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(names)}"
    for slow in SLOW:
        for seeds in SEEDS:
            values: list[Any] = [
                pair for method in methods.values() for pair in covered(method, seeds, slow, replicates)
            ]
            cells = [f"{100 * pair.share:.1f} % ({pair.width:.3g} %)" for pair in values]
            yield f"| {slow} | {seeds} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print(*table(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000), sep="\n")
