"""Estimates of test metrics and of their differences: over seeds and test samples together, inside what is possible.

Seeds share one test set, so that both are drawn at random and crossed: a share is the mean of a table of seeds and
samples, y_si = share + seed_s + sample_i + rest_si. Its variance is that of both together, by the mean squares of a
two-way analysis of variance (Searle, Casella & McCulloch, Variance Components, 1992):

    half^2 = (t^2 MS_seeds + z^2 max(0, MS_samples - MS_rest)) / (seeds * samples).

Where each seed leaves another fold out, folds are the replicates. The logarithm of an error is the mean of such a table too,
where a record has its influence function; metrics of values below 0 are estimated over seeds alone. The mean over J splits of the same
data, whose samples overlap, has the variance (1/J + n2/n1) s^2 (Nadeau & Bengio, Machine Learning 52, 239, 2003; n1 training
and n2 test samples), and that of the seeds, which are the same in all. Data sets are compared by signed ranks (Demsar, JMLR 7,
1, 2006).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ketscale.analysis.heavy import np
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate, exceeded, spread
from ketscale.config import Metric
from ketscale.measure.form import Quality, Record
from ketscale.measure.right import unpacked, unpacked_numbers

Table: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"


@dataclass(frozen=True, eq=False)
class Scored:
    """The test of one run.

    value: the headline metric. row: what each sample adds to it where that is a share, else to its logarithm, (samples,); the
    mean is the metric, or its logarithm. None if unknown.
    fold: None if the workload has one split. ratio: of the numbers of test and training samples.
    """

    value: float
    row: Table | None = None
    fold: int | None = None
    ratio: float = 0.0

    def guessed(self, chance: float) -> Scored:
        """What guessing gets on the same samples; all wrong with a chance of 0."""
        return replace(self, value=chance, row=None if self.row is None else 0 * self.row + chance)


# The workload, which may be one of several splits of the same data, and the seed.
Seed = tuple[str, int]
Tests = Mapping[Seed, Scored]


def scored(records: Iterable[Record], metric: Metric) -> dict[Seed, Scored]:
    """The test of each seed whose run was completed and has this metric."""
    values = {}
    for record in records:
        quality = record.quality
        value = quality.test.get(metric.name) if quality else None
        if quality and isinstance(value, (int, float)):
            trained, tested = record.samples.get("train", 0), record.samples.get("test", 0)
            seed = str(record.run["workload"]), int(record.run["seed"])
            ratio = tested / trained if trained else 0.0
            values[seed] = Scored(float(value), _added(value, quality), record.split.fold, ratio)
    return dict(sorted(values.items()))


def estimate(tests: Tests, metric: Metric, level: float = LEVEL) -> Estimate | None:
    """The mean over seeds with its interval; None without a seed.

    Of a share: by Wilson's formula (J. Am. Stat. Assoc. 22, 209, 1927), whose number of samples is the one that would give the
    variance of seeds and samples together, at most that of the test. Of a positive metric: the geometric mean.
    """
    if not tests:
        return None
    rows = {seed: test.row for seed, test in sorted(tests.items()) if test.row is not None}
    if not metric.is_share:
        return _mean({seed: test.value for seed, test in tests.items()}, rows, tests, level)
    share, half, samples = _spread(tests, rows, level)
    effective = float(samples)
    if half > 0 and 0 < share < 1:
        effective = min(effective, _normal(level) ** 2 * share * (1 - share) / half**2)
    return Estimate(share, *wilson(share, effective, level), len(tests))


def difference(tests: Tests, control: Tests, metric: Metric, level: float = LEVEL) -> Estimate | None:
    """How much more a model has than its control, paired by seed and by sample; None without a seed that both have.

    Of a share: the difference, from -1 to 1. z^2, about four, samples are added that differ, as many either way, like those of
    Agresti & Min (Biometrics 61, 515, 2005), who add two. So n samples that never differ leave a difference of up to
    z^2 / (n + z^2), which is Wilson's limit of how often they do. Of a positive metric: the ratio.
    """
    pairs = {seed: (tests[seed], control[seed]) for seed in sorted(tests.keys() & control.keys())}
    if not pairs:
        return None
    rows = {
        seed: one.row - other.row
        for seed, (one, other) in pairs.items()
        if one.row is not None and other.row is not None
    }
    if not metric.is_share:
        ratio = is_ratio(tests, control, metric)
        differences = {
            seed: one.value / other.value if ratio else one.value - other.value
            for seed, (one, other) in pairs.items()
        }
        return _mean(differences, rows, tests, level, positive=ratio)
    mean, half, samples = _spread(tests, rows, level)
    more = _normal(level) ** 2
    centre = mean * samples / (samples + more)
    half = math.hypot(half * samples, more) / (samples + more)
    low, high = max(-1.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))
    return Estimate(mean, low, high, len(pairs))


def is_ratio(tests: Tests, control: Tests, metric: Metric) -> bool:
    """Whether two sides are compared by their ratio: a metric that is no share, all of whose values are positive."""
    values = [test.value for side in (tests, control) for test in side.values()]
    return not metric.is_share and min(values, default=0) > 0


def wilson(share: float, count: float, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a share of so many samples, or as many as carry its variance."""
    square = _normal(level) ** 2 / count
    centre, spread = share + square / 2, math.sqrt(square * (share * (1 - share) + square / 4))
    low, high = (centre - spread) / (1 + square), (centre + spread) / (1 + square)
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def _spread(tests: Tests, rows: Mapping[Seed, Table], level: float) -> tuple[float, float, int]:
    """The mean of all tests' rows, the half width of its interval, and the number of samples.

    rows: of each test what each of its samples adds.
    """
    parts: dict[tuple[str, int], list[Table]] = {}
    for seed, row in rows.items():
        parts.setdefault((seed[0], tests[seed].fold or 0), []).append(row)
    tables = [np.array(parts[part]) for part in sorted(parts)]
    samples = sum(table.shape[1] for table in tables)
    mean = math.fsum(float(table.mean(1).sum()) for table in tables) / len(rows)
    if len(tables) > 1:
        residuals = [float((table.mean(1) - mean).sum()) / len(rows) for table in tables]
        variance = len(residuals) / (len(residuals) - 1) * math.fsum(part**2 for part in residuals)
        half = _student(level, len(residuals)) * math.sqrt(variance)
        if len({split for split, _ in rows}) > 1:
            mean, half, _ = _replicates({seed: float(row.mean()) for seed, row in rows.items()}, tests, level)
        # A few parts may be alike by chance, though their samples are not.
        sampling = (
            math.fsum(float(((table - mean) ** 2).mean(1).sum()) for table in tables) / len(rows) / samples
        )
        return mean, max(half, _normal(level) * math.sqrt(sampling)), samples
    (table,) = tables
    seeds = table.shape[0]
    of_seed, of_sample = table.mean(1) - mean, table.mean(0) - mean
    by_sample = seeds * float((of_sample**2).mean())
    squared = _normal(level) ** 2 * by_sample
    if seeds > 1:
        by_seed = samples * float((of_seed**2).sum()) / (seeds - 1)
        squared = _student(level, seeds) ** 2 * by_seed
        squared += _normal(level) ** 2 * max(0.0, by_sample - _rest(table))
    return mean, math.sqrt(squared / (seeds * samples)), samples


def _rest(table: Table) -> float:
    """The mean square of a table that is neither of its rows nor of its columns."""
    rest = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    return float((rest**2).sum()) / max(1, (table.shape[0] - 1) * (table.shape[1] - 1))


def _added(value: float, of: Quality) -> Table | None:
    """What each sample adds to a metric of this value, or to its logarithm, as `Scored` has it."""
    if of.influence is not None and value > 0:
        shifts = np.array(unpacked_numbers(of.influence))
        return math.log(value) + shifts - shifts.mean()
    return None if of.right is None else _row(unpacked(of.right))


def _row(cases: Sequence[tuple[int, int]]) -> Table:
    """What each sample adds to the share: of cases (right, all) of each, so that the mean over samples is the share."""
    right, counts = np.array(cases, float).T
    return right / counts.mean()


def over_seeds(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """The mean with Student's interval; of positive values on the logarithm. No interval if all seeds are equal."""
    return _mean({("", seed): value for seed, value in enumerate(values)}, {}, {}, level)


def _mean(
    values: Mapping[Seed, float],
    rows: Mapping[Seed, Table],
    tests: Tests,
    level: float,
    positive: bool = True,
) -> Estimate:
    """The mean of values, each of a test; of positive ones the geometric mean, by samples if all have rows."""
    logarithmic = positive and min(values.values()) > 0
    scaled = {seed: math.log(value) for seed, value in values.items()} if logarithmic else values
    if logarithmic and len(rows) == len(values):
        mean, half, _ = _spread(tests, rows, level)
        usable = half > 1e-12 * abs(mean)
    else:
        mean, half, count = _replicates(scaled, tests, level)
        usable = count >= FEWEST and half > 1e-12 * max(map(abs, scaled.values()))
    low, high = (mean - half, mean + half) if usable else (None, None)
    return Estimate(mean, low, high, len(values)).mapped(math.exp if logarithmic else float)


def _replicates(values: Mapping[Seed, float], tests: Tests, level: float) -> tuple[float, float, int]:
    """The mean over splits, or over the seeds of one split, the half width of its interval, and the number of these."""
    of_split: dict[str, dict[int, float]] = {}
    for (split, seed), value in values.items():
        of_split.setdefault(split, {})[seed] = value
    splits, means = len(of_split), [statistics.fmean(seeds.values()) for seeds in of_split.values()]
    ratio, squared = statistics.fmean(tests[seed].ratio for seed in values) if splits > 1 else 0.0, 0.0
    if splits == 1:
        means = [*values.values()]
    common = sorted(set.intersection(*map(set, of_split.values())))
    if splits > 1 and len(common) > 1:
        table = np.array([[seeds[seed] for seed in common] for seeds in of_split.values()])
        between = max(0.0, float(table.mean(0).var(ddof=1)) - _rest(table) / splits) / len(common)
        squared = _student(level, len(common)) ** 2 * between
    if len(means) > 1:
        squared += _student(level, len(means)) ** 2 * (1 / len(means) + ratio) * spread(means) ** 2
    return statistics.fmean(means), math.sqrt(squared), len(means)


def _student(level: float, n: int) -> float:
    return exceeded((1 - level) / 2, n - 1)


def _normal(level: float) -> float:
    return statistics.NormalDist().inv_cdf((1 + level) / 2)


def signed_rank(differences: Sequence[float]) -> Estimate | None:
    """What is typical of the differences, with the interval that inverts Wilcoxon's signed-rank test; None of none.

    The pseudomedian and the order statistics of the Walsh averages (Hodges & Lehmann, Ann. Math. Stat. 34, 598, 1963),
    with the exact distribution of the test. With fewer than six differences there is no interval: even if all have the same sign,
    chance alone gives that in one of 2^(n - 1) cases, more than 5 %.
    """
    if not differences:
        return None
    values, n = np.sort(differences), len(differences)
    averages = np.sort(np.add.outer(values, values)[np.triu_indices(n)] / 2)
    # The probability of each sum of ranks: each of the ranks from 1 to n is in it or not.
    sums = np.ones(1)
    for rank in range(1, n + 1):
        sums = np.convolve(sums, [0.5, *[0.0] * (rank - 1), 0.5])
    least = int(np.searchsorted(np.cumsum(sums), (1 - LEVEL) / 2, side="right"))
    low, high = (float(averages[least - 1]), float(averages[-least])) if least else (None, None)
    return Estimate(float(np.median(averages)), low, high, n)
