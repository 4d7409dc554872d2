"""Statistics over data sets, each of which is a replicate: signed ranks of differences, and ranks of several models.

Two sides are compared by Wilcoxon's signed ranks and several models by Friedman's test with critical differences, as Demsar
(JMLR 7, 1, 2006) recommends. All that is computed is exact, but for the tail of Friedman's test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ketscale.analysis.heavy import np, pd, stats
from ketscale.analysis.intervals import LEVEL, Estimate

# Below this number of data sets nothing is ranked, and of fewer than three models there is no more than signed ranks say.
FEWEST_DATA, FEWEST_MODELS = 5, 3


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


def mean_ranks(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean rank of each model, 1 for the largest score; ties share theirs.

    scores: of each data set the score of every model; the models are the same.
    """
    return {str(model): float(rank) for model, rank in _ranks(scores).mean().items()}


def friedman(scores: Sequence[Mapping[str, float]]) -> float:
    """The p-value that all models rank alike: F of Iman & Davenport (Commun. Stat. A 9, 571, 1980), corrected for ties.

    It is never smaller than the chance that all data sets agree.
    """
    ranked = _ranks(scores)
    if (ranked.nunique(axis="columns") == 1).all():
        return 1.0  # all models tie on all data sets
    n, k = ranked.shape
    chi = float(stats.friedmanchisquare(*ranked.to_numpy().T).statistic)
    rest = n * (k - 1) - chi
    tail = float(stats.f.sf((n - 1) * chi / rest, k - 1, (k - 1) * (n - 1))) if rest > 1e-9 else 0.0
    return max(tail, math.factorial(k) ** (1.0 - n))


def critical_difference(models: int, data: int) -> float:
    """The difference from which on mean ranks are told apart, all pairs together (Nemenyi, 1963)."""
    quantile = float(stats.studentized_range.ppf(LEVEL, models, math.inf))
    return quantile * math.sqrt(models * (models + 1) / (12 * data))


def _ranks(scores: Sequence[Mapping[str, float]]) -> pd.DataFrame:
    """The ranks on each data set, a column for each model; scores that differ by rounding tie."""
    return pd.DataFrame(scores).round(12).rank(axis="columns", ascending=False)
