"""Intervals over seeds: their coverage on data of known truth, and what few seeds allow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ketscale.analysis import intervals
from ketscale.analysis.intervals import Estimate

REPLICATES = 4_000


@pytest.mark.parametrize("seeds", [3, 5, 8, 30])
def test_intervals_of_ratios_cover_the_truth_as_often_as_they_say(
    seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise of 5 % around a ratio of 1.03; 4,000 replicates have a standard error of 0.34 points."""
    # As many resamples as the coverage needs; the test has 4,000 intervals to make.
    monkeypatch.setattr(intervals, "RESAMPLES", 999)
    draws = np.random.default_rng(seeds).normal(math.log(1.03), 0.05, (REPLICATES, seeds))
    found = [intervals.ratio(list(ratios)) for ratios in np.exp(draws)]
    covered = sum(each.low <= 1.03 <= each.high for each in found)
    assert abs(covered / REPLICATES - intervals.LEVEL) <= 0.02


@pytest.mark.parametrize("seeds", [15, 20])
def test_the_bootstrap_is_wide_enough_where_it_begins(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 999)
    draws = np.random.default_rng(seeds).normal(0.0, 1.0, (REPLICATES, seeds))
    covered = sum(found.low <= 0.0 <= found.high for found in map(intervals.mean, draws.tolist()))
    assert abs(covered / REPLICATES - intervals.LEVEL) <= 0.02


def test_fewer_than_three_seeds_have_no_interval() -> None:
    assert intervals.mean([]) is None
    assert intervals.mean([2.0]) == Estimate(2.0, None, None, 1)
    assert intervals.ratio([2.0, 2.0]) == Estimate(pytest.approx(2.0), None, None, 2)


def test_students_interval_of_a_published_example() -> None:
    """Student's sleep data (Biometrika 6, 1, 1908, p. 20): ten differences, mean 1.58, standard deviation 1.23."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    found = intervals.mean(gained)
    assert found == Estimate(
        pytest.approx(1.58), pytest.approx(0.7001, abs=1e-4), pytest.approx(2.4599, abs=1e-4), 10
    )


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert intervals.mean([2.0] * 20) == Estimate(2.0, 2.0, 2.0, 20)


def test_an_interval_of_ratios_does_not_depend_on_which_is_above() -> None:
    ratios = [1.5, 1.7, 1.4, 2.0]
    found, inverse = intervals.ratio(ratios), intervals.ratio([1 / each for each in ratios])
    assert (inverse.low, inverse.value, inverse.high) == pytest.approx(
        (1 / found.high, 1 / found.value, 1 / found.low)
    )


def test_one_unusual_seed_among_many_stretches_the_bootstrap_to_its_own_side() -> None:
    values = [0.01 * k for k in range(-10, 11)]
    found = intervals.mean([*values, 3.0])
    assert found.high - found.value > found.value - found.low
