"""Signed ranks, Friedman's test and critical differences, beside SciPy's and published tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ketscale.analysis import ranks


@pytest.mark.parametrize("n", [6, 7, 12, 25])
def test_the_interval_excludes_zero_where_the_exact_test_of_signed_ranks_rejects(n: int) -> None:
    draw, decided = np.random.default_rng(n), 0
    for shift in (0.0, 0.3, 0.6, 1.0) * 20:
        values = [float(value) for value in draw.normal(shift, 1, n)]
        found = ranks.signed_rank(values)
        assert found is not None and found.low is not None and found.high is not None
        assert found.low <= found.value <= found.high and found.n == n
        excluded = found.low > 0 or found.high < 0
        assert excluded == (stats.wilcoxon(values, method="exact").pvalue <= 0.05)
        decided += excluded
    assert 0 < decided < 80


def test_five_data_sets_have_no_interval_since_chance_agrees_too_often() -> None:
    found = ranks.signed_rank([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None and (found.value, found.low, found.high) == (3.0, None, None)
    assert ranks.signed_rank([]) is None


# Demsar, JMLR 7, 1 (2006), table 5 (a): q at 5 %, of 2 to 10 models.
NEMENYI = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)


def test_critical_differences_are_the_published_ones() -> None:
    for models, q in enumerate(NEMENYI, 2):
        expected = q * (models * (models + 1) / (6 * 14)) ** 0.5
        assert ranks.critical_difference(models, 14) == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize("rounded", [False, True], ids=["no ties", "ties"])
def test_friedmans_test_is_that_of_scipy_with_the_better_tail(rounded: bool) -> None:
    """Iman and Davenport's F, from SciPy's chi-squared."""
    table = np.random.default_rng(1).normal([0.8, 0, 0, -0.3], size=(9, 4))
    table = np.round(table) if rounded else table
    scores = [dict(zip("dbca", map(float, row), strict=True)) for row in table]
    chi = stats.friedmanchisquare(*table.T).statistic
    assert ranks.friedman(scores) == pytest.approx(stats.f.sf(8 * chi / (9 * 3 - chi), 3, 24))
    means = ranks.mean_ranks(scores)
    expected = stats.rankdata(-table, axis=1).mean(0)
    assert [means[name] for name in "dbca"] == pytest.approx([float(rank) for rank in expected])


def test_agreement_is_never_rarer_than_it_is() -> None:
    agreed = [{"a": 3.0, "b": 2.0, "c": 1.0}] * 5
    assert ranks.friedman(agreed) == pytest.approx(6.0**-4)
    assert ranks.friedman([{"a": 1.0, "b": 1.0, "c": 1.0}] * 5) == 1.0


def test_models_that_failed_and_scores_that_differ_by_rounding_tie() -> None:
    scores = [{"a": 1.0, "b": -np.inf, "c": -np.inf}, {"a": 0.3, "b": 0.1 + 0.2, "c": 0.0}]
    assert ranks.mean_ranks(scores) == {"a": (1 + 1.5) / 2, "b": (2.5 + 1.5) / 2, "c": (2.5 + 3) / 2}
