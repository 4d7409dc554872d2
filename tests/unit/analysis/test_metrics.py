"""Intervals of accuracies, inside what is possible and as wide as seeds and samples make them; and ranks over data sets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ketscale.analysis import metrics
from ketscale.analysis.metrics import Scored, Seed, difference, estimate
from ketscale.config import Metric
from tests.unit.analysis.coverage import ACCURACY, EFFECTS, coverage

INFIDELITY = Metric("infidelity", "infidelity", "", "down")
Rows = list[list[float]]


def seeds(rows: Rows, folds: bool = False) -> dict[Seed, Scored]:
    """The tests of seeds, from what each sample adds."""
    return {
        ("", seed): Scored(float(np.mean(row)), np.array(row, float), seed if folds else None)
        for seed, row in enumerate(rows)
    }


def errors(*values: float) -> dict[Seed, Scored]:
    return {("", seed): Scored(value) for seed, value in enumerate(values)}


@pytest.mark.parametrize(("count", "samples", "effects", "shares"), [
    (3, 9, EFFECTS[0], (0.5, 0.8)), (3, 27, EFFECTS[7], (0.97, 0.9)), (3, 180, EFFECTS[2], (0.5, 0.8)),
    (8, 9, EFFECTS[7], (0.5, 0.8)), (8, 27, EFFECTS[2], (0.97, 0.9)), (8, 180, EFFECTS[7], (0.97, 0.9)),
])  # fmt: skip
def test_intervals_hold_the_truth(
    count: int, samples: int, effects: tuple[float, float, float], shares: tuple[float, float]
) -> None:
    """At least 93 % of 300 times, but for a chance below 1 in 1,000; and far narrower than everything possible."""
    for result in coverage(count, samples, shares, effects, repeats=300):
        assert result.share >= 0.93 - 3.1 * (0.93 * 0.07 / 300) ** 0.5
        assert result.width < (1.0 if samples == 9 else 0.7)


def test_folds_that_differ_are_the_replicates() -> None:
    for result in coverage(8, 27, (0.9, 0.8), (0.5, 1.5, 0.7), repeats=300, nested=True):
        assert result.share >= 0.93 - 3.1 * (0.93 * 0.07 / 300) ** 0.5


def test_the_variance_is_that_of_both_together() -> None:
    """By hand, from the mean squares of a table of two seeds and four samples."""
    rows = np.array([[1, 1, 0, 1], [1, 0, 0, 1]], float)
    seed, sample = rows.mean(1) - 0.625, rows.mean(0) - 0.625
    rest = rows - 0.625 - seed[:, None] - sample
    by_seed, by_sample, inside = 4 * (seed**2).sum(), 2 * (sample**2).sum() / 4, (rest**2).sum() / 3
    half = ((12.7062**2 * by_seed + 1.959964**2 * max(0, by_sample - inside)) / 8) ** 0.5
    # Newcombe's form of Wilson's interval.
    n, z = 1.959964**2 * 0.625 * 0.375 / half**2, 1.959964
    centre, spread = 2 * n * 0.625 + z**2, z * (z**2 + 4 * n * 0.625 * 0.375) ** 0.5
    result = estimate(seeds(rows.tolist()), ACCURACY)
    assert result and (result.low, result.high) == pytest.approx(
        ((centre - spread) / (2 * (n + z**2)), (centre + spread) / (2 * (n + z**2))), rel=1e-5
    )


@pytest.mark.parametrize(
    ("right", "samples", "low", "high"),
    # scipy.stats.binomtest(right, samples).proportion_ci(method="wilson")
    [(174, 180, 0.92920, 0.98464), (27, 27, 0.87544, 1.0), (0, 9, 0.0, 0.29915)],
)
def test_one_seed_has_wilsons_interval(right: int, samples: int, low: float, high: float) -> None:
    result = estimate(seeds([[1] * right + [0] * (samples - right)]), ACCURACY)
    assert result and (result.low, result.high) == pytest.approx((low, high), abs=5e-5)
    # Seeds that agree in every sample are no more samples.
    repeat = estimate(seeds([[1] * right + [0] * (samples - right)] * 8), ACCURACY)
    assert repeat and (repeat.low, repeat.high) == pytest.approx((low, high), abs=5e-5)


def test_differences_stay_possible_and_nothing_that_never_differs_is_certain() -> None:
    best, worst = seeds([[1] * 9] * 3), seeds([[0] * 9] * 3)
    for one, other, value in ((best, worst, 1), (worst, best, -1), (best, best, 0)):
        result = difference(one, other, ACCURACY)
        assert result and result.low is not None and result.high is not None
        assert (result.value, result.n) == (value, 3)
        assert -1 <= result.low <= value <= result.high <= 1 and result.high - result.low > 0.15


def test_pairs_of_samples_count_not_their_totals() -> None:
    """The same accuracies: models that err on the same samples are told apart more surely than those that do not."""
    model = seeds([[1] * 160 + [0] * 20] * 3)
    same, other = seeds([[1] * 150 + [0] * 30] * 3), seeds([[0] * 30 + [1] * 150] * 3)
    near, far = difference(model, same, ACCURACY), difference(model, other, ACCURACY)
    assert near and far and near.value == pytest.approx(far.value)
    assert near.low is not None and far.low is not None and near.low > 0 > far.low


def test_only_seeds_that_both_have_are_pairs() -> None:
    one = seeds([[1, 0]] * 5)
    other = {("", seed + 3): test for (_, seed), test in seeds([[1, 1]] * 5).items()}
    result = difference(one, other, ACCURACY)
    assert result and result.n == 2
    assert difference(one, {("", 9): one["", 0]}, ACCURACY) is None and estimate({}, ACCURACY) is None


def test_a_sample_of_several_cases_is_one_sample() -> None:
    """Two words of each sentence, both right or both wrong: as sure as sentences, not as words."""
    words = metrics._row([(2, 2)] * 20 + [(0, 2)] * 7)
    result = estimate({("", 0): Scored(20 / 27, words)}, ACCURACY)
    single = estimate(seeds([[1] * 20 + [0] * 7]), ACCURACY)
    assert result and single and (result.low, result.high) == pytest.approx((single.low, single.high))
    assert metrics._row([(1, 1), (1, 3)]).mean() == 2 / 4, "cases count alike"


def test_errors_are_compared_on_the_logarithm() -> None:
    result = estimate(errors(1e-4, 1e-3, 1e-2), INFIDELITY)
    # t is 4.302653, and the standard deviation of the logarithms ln 10.
    half = 4.302653 * np.log(10) / 3**0.5
    assert result and result.value == pytest.approx(1e-3)
    assert (result.low, result.high) == pytest.approx((1e-3 * np.exp(-half), 1e-3 * np.exp(half)), rel=1e-5)
    ratio = difference(errors(1e-4, 1e-3, 1e-2), errors(2e-4, 4e-3, 2e-2), INFIDELITY)
    assert ratio and ratio.value == pytest.approx(16 ** (-1 / 3)) and ratio.low is not None and ratio.low > 0


def test_an_error_that_is_not_positive_is_compared_by_its_difference() -> None:
    one, other = errors(0.0, 0.1, 0.2), errors(0.1, 0.3, 0.2)
    assert not metrics.is_ratio(one, other, INFIDELITY) and metrics.is_ratio(other, other, INFIDELITY)
    result = difference(one, other, INFIDELITY)
    assert result and result.value == pytest.approx(-0.1)


def test_seeds_that_are_all_equal_or_few_have_no_interval() -> None:
    for values in ((0.1, 0.1, 0.1), (0.1, 0.2), (0.1,)):
        result = estimate(errors(*values), INFIDELITY)
        assert result and result.low is None


# --- several splits of the same data ---

RMSE = Metric("rmse", "RMSE", "", "down")


def of_splits(values: list[list[float]], ratio: float) -> dict[Seed, Scored]:
    """Tests of splits, each with some seeds."""
    return {
        (f"s{split}", seed): Scored(value, ratio=ratio)
        for split, of_split in enumerate(values)
        for seed, value in enumerate(of_split)
    }


def test_splits_have_the_variance_of_nadeau_and_bengio() -> None:
    """By hand: (1/J + n2/n1) s^2, on the logarithm of what is positive."""
    values = [[1.1], [1.45], [1.0], [1.3]]
    logs = np.log(values).mean(1)
    half = 3.182446 * (logs.var(ddof=1) * (1 / 4 + 0.25)) ** 0.5
    result = estimate(of_splits(values, 0.25), RMSE)
    assert result is not None and result.n == 4
    expected = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    assert (result.value, result.low, result.high) == pytest.approx(expected, rel=1e-6)
    control = of_splits([[value + 1 for value in of_split] for of_split in values], 0.25)
    ratios = np.log(np.array(values) / (np.array(values) + 1)).mean(1)
    half = 3.182446 * (ratios.var(ddof=1) * (1 / 4 + 0.25)) ** 0.5
    paired = difference(of_splits(values, 0.25), control, RMSE)
    assert paired is not None
    expected = np.exp([ratios.mean(), ratios.mean() - half, ratios.mean() + half])
    assert (paired.value, paired.low, paired.high) == pytest.approx(expected, rel=1e-6)


def test_seeds_that_the_splits_share_count_too() -> None:
    """By hand: the variance of the means of seeds, but for what is of a seed in a split alone."""
    values = np.array([[0.2, 0.9], [0.4, 1.0], [0.3, 0.5]])
    splits, by_seed = values.mean(1), values.mean(0)
    rest = values - splits[:, None] - by_seed + values.mean()
    inside = (rest**2).sum() / 2 / 3
    squared = 4.302653**2 * (1 / 3 + 0.25) * splits.var(ddof=1)
    half = (squared + 12.706205**2 * (by_seed.var(ddof=1) - inside) / 2) ** 0.5
    metric = Metric("score", "score", "", "up")
    result = estimate(of_splits((values - 0.5).tolist(), 0.25), metric)
    assert result is not None and result.value == pytest.approx(values.mean() - 0.5)
    assert (result.low, result.high) == pytest.approx((result.value - half, result.value + half), rel=1e-6)


def test_shares_of_splits_have_it_too_inside_what_is_possible() -> None:
    rows = np.repeat([[1, 1, 1, 0], [1, 0, 1, 0], [1, 1, 1, 1]], 25, axis=1).astype(float)
    tests = {(f"s{split}", 0): Scored(row.mean(), row, ratio=0.2) for split, row in enumerate(rows)}
    result = estimate(tests, ACCURACY)
    assert result is not None and result.value == 0.75
    # Wilson's interval of so many samples as would have this variance.
    half = 4.302653 * (np.var([0.75, 0.5, 1.0], ddof=1) * (1 / 3 + 0.2)) ** 0.5
    n, z = 1.959964**2 * 0.75 * 0.25 / half**2, 1.959964
    centre, spread = 2 * n * 0.75 + z**2, z * (z**2 + 4 * n * 0.75 * 0.25) ** 0.5
    ends = [(centre + sign * spread) / (2 * (n + z**2)) for sign in (-1, 1)]
    assert (result.low, result.high) == pytest.approx(ends, rel=1e-5)
    scores = {key: Scored(test.value, test.row) for key, test in tests.items()}
    narrower = estimate(scores, ACCURACY)
    assert narrower is not None and narrower.low is not None and result.low is not None
    assert narrower.low > result.low


# --- errors whose influence function is known ---


def regression(squared: np.ndarray) -> Scored:
    """The test of a regression with these squared errors of its samples."""
    value = float(squared.mean() ** 0.5)
    return Scored(value, np.log(value) + (squared / squared.mean() - 1) / 2)


def test_an_error_of_one_seed_has_the_interval_of_its_samples() -> None:
    """Against the jackknife of the logarithm of the RMSE."""
    squared = np.random.default_rng(1).normal(size=400) ** 2
    left_out = np.array([np.log(np.delete(squared, at).mean()) / 2 for at in range(400)])
    half = 1.959964 * (399 / 400 * ((left_out - left_out.mean()) ** 2).sum()) ** 0.5
    result = estimate({("w", 0): regression(squared)}, RMSE)
    assert result is not None and result.low is not None and result.high is not None
    assert result.value == pytest.approx(squared.mean() ** 0.5)
    assert np.log(result.high / result.low) / 2 == pytest.approx(half, rel=0.02)


def test_an_error_of_nothing_outside_the_pairs_makes_a_difference_of_all() -> None:
    """Else the unit, which `is_ratio` decides, were that of another estimate."""
    tests = {("w", 0): regression(np.full(50, 4.0)), ("w", 1): Scored(0.0)}
    control = {("w", 0): regression(np.full(50, 9.0))}
    result = difference(tests, control, RMSE)
    assert not metrics.is_ratio(tests, control, RMSE)
    assert result is not None and result.value == pytest.approx(2 - 3)


def test_intervals_of_errors_hold_the_truth_where_those_of_seeds_alone_do_not() -> None:
    """Errors of a sample, of a seed, and of both; a model and its control share what samples add."""
    generator, coverage = np.random.default_rng(3), np.zeros(3)
    for _ in range(300):
        sample = generator.normal(size=100)
        error = sample + 0.1 * generator.normal(size=(4, 1)) + 0.2 * generator.normal(size=(4, 100))
        tests = {("w", seed): regression(row**2) for seed, row in enumerate(error)}
        other = {
            ("w", seed): regression((1.5 * row) ** 2)
            for seed, row in enumerate(error + 0.1 * generator.normal(size=(4, 100)))
        }
        truth = (1 + 0.1**2 + 0.2**2) ** 0.5
        single = {seed: Scored(test.value) for seed, test in tests.items()}
        pairs = ((estimate(tests, RMSE), truth), (estimate(single, RMSE), truth))
        ratio = truth / (1.5 * (truth**2 + 0.01) ** 0.5)
        for number, (result, true) in enumerate((*pairs, (difference(tests, other, RMSE), ratio))):
            assert result is not None and result.low is not None and result.high is not None
            coverage[number] += result.low <= true <= result.high
    assert coverage[0] > 0.92 * 300 > 0.75 * 300 > coverage[1]
    assert coverage[2] > 0.92 * 300


# --- ranks over data sets, beside SciPy's and published tables ---


@pytest.mark.parametrize("n", [6, 7, 12, 25])
def test_the_interval_excludes_zero_where_the_exact_test_of_signed_ranks_rejects(n: int) -> None:
    draw, decided = np.random.default_rng(n), 0
    for shift in (0.0, 0.3, 0.6, 1.0) * 20:
        values = [float(value) for value in draw.normal(shift, 1, n)]
        result = metrics.signed_rank(values)
        assert result is not None and result.low is not None and result.high is not None
        assert result.low <= result.value <= result.high and result.n == n
        excluded = result.low > 0 or result.high < 0
        assert excluded == (stats.wilcoxon(values, method="exact").pvalue <= 0.05)
        decided += excluded
    assert 0 < decided < 80


def test_five_data_sets_have_no_interval_since_chance_agrees_too_often() -> None:
    result = metrics.signed_rank([1.0, 2.0, 3.0, 4.0, 5.0])
    assert result is not None and (result.value, result.low, result.high) == (3.0, None, None)
    assert metrics.signed_rank([]) is None
