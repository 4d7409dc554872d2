"""Intervals over seeds: their coverage on data of known truth, and what few seeds allow."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from ketscale.analysis import intervals
from ketscale.analysis.intervals import Estimate


def test_fewer_than_three_seeds_have_no_interval() -> None:
    assert intervals.typical([]) is None
    assert intervals.typical([2.0]) == Estimate(2.0, None, None, 1)
    assert intervals.typical([2.0, 2.0]) == Estimate(2.0, None, None, 2)


def test_students_interval_of_a_published_example() -> None:
    """Student's sleep data (Biometrika 6, 1, 1908, p. 20): ten differences, mean 1.58, standard deviation 1.23."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    result = intervals.typical(gained)
    assert result == Estimate(
        pytest.approx(1.58), pytest.approx(0.7001, abs=1e-4), pytest.approx(2.4599, abs=1e-4), 10
    )


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert intervals.typical([2.0] * 20) == Estimate(2.0, 2.0, 2.0, 20)


@pytest.mark.parametrize("seeds", [3, 7, 16, 30])
def test_the_typical_ratio_does_not_depend_on_which_is_above(seeds: int) -> None:
    logs = np.random.default_rng(seeds).normal(0.3, 0.1, seeds).tolist()
    result, inverse = intervals.typical(logs), intervals.typical([-each for each in logs])
    assert (inverse.low, inverse.value, inverse.high) == pytest.approx(
        (-result.high, -result.value, -result.low)
    )


def test_of_many_values_the_typical_one_is_the_median_with_order_statistics() -> None:
    """The 10th and the 21st of 30 (Conover, Practical Nonparametric Statistics, 1999, table of the binomial)."""
    values = np.random.default_rng(0).permutation(np.arange(30.0))
    result = intervals.typical(values.tolist())
    assert (result.value, result.low, result.high, result.n) == (14.5, 9.0, 20.0, 30)


def test_an_outlier_is_left_out_and_counted_but_none_of_three_values_is_one() -> None:
    result = intervals.typical([1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 9.0])
    assert (result.n, result.outliers, result.value) == (6, 1, pytest.approx(1.0, abs=0.001))
    assert intervals.typical([1.0, 1.01, 9.0]).outliers == 0


def test_outliers_by_the_published_example() -> None:
    """Three of 54 (Rosner 1983, as in the NIST/SEMATECH handbook of statistical methods, 1.3.5.17.3), here at 5 %."""
    values = [
        -0.25, 0.68, 0.94, 1.15, 1.20, 1.26, 1.26, 1.34, 1.38, 1.43, 1.49, 1.49, 1.55, 1.56, 1.58, 1.65, 1.69, 1.70,
        1.76, 1.77, 1.81, 1.91, 1.94, 1.96, 1.99, 2.06, 2.09, 2.10, 2.14, 2.15, 2.23, 2.24, 2.26, 2.35, 2.37, 2.40,
        2.47, 2.54, 2.62, 2.64, 2.90, 2.92, 2.92, 2.93, 3.21, 3.26, 3.30, 3.59, 3.68, 4.30, 4.64, 5.34, 5.42, 6.01,
    ]  # fmt: skip
    assert sorted(set(values) - set(intervals.inliers(values, 0.05))) == [5.34, 5.42, 6.01]


def test_no_spread_is_no_certainty() -> None:
    result = intervals.typical([0.05] * 3, 0.01)
    assert result.high - result.low == pytest.approx(2 * 4.302653 * 0.01 / math.sqrt(3), rel=1e-6)
    many = intervals.typical([0.05] * 30, 0.01)
    assert many.low < 0.05 < many.high


def test_the_median_of_an_even_number_is_inside() -> None:
    values = [0.001 * k for k in range(7)] + [0.1] + [1 + 0.01 * k for k in range(6)]
    result = intervals.typical(values)
    assert result and result.low is not None and result.high is not None
    assert result.low <= statistics.median(values) <= result.high


def test_a_function_that_falls_exchanges_the_ends() -> None:
    result = Estimate(2.0, 1.0, 4.0, 5, 1)
    assert result.inverse() == Estimate(0.5, 0.25, 1.0, 5, 1)
    assert result.times(-2.0) == Estimate(-4.0, -8.0, -2.0, 5, 1)
    assert Estimate(2.0, None, None, 1).mapped(math.log2) == Estimate(1.0, None, None, 1)
