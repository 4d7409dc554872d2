"""Statistics over data sets, each of which is a replicate: signed ranks of differences, and ranks of several models.

Two sides are compared by Wilcoxon's signed ranks and several models by Friedman's test with critical differences, as Demsar
(JMLR 7, 1, 2006) recommends. All that is computed is exact, but for the tail of Friedman's test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ketscale.analysis.heavy import np, special, stats
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
    n, values = len(differences), sorted(differences)
    averages = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    below, least = 0.0, 0
    for cases in _sums(n):
        below += cases / 2**n
        if below > (1 - LEVEL) / 2:
            break
        least += 1
    low, high = (averages[least - 1], averages[-least]) if least else (None, None)
    return Estimate(statistics.median(averages), low, high, n)


def mean_ranks(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean rank of each model, 1 for the largest score; ties share theirs.

    scores: of each data set the score of every model; the models are the same.
    """
    return dict(zip(sorted(scores[0]), _ranks(scores).mean(0).tolist(), strict=True))


def friedman(scores: Sequence[Mapping[str, float]]) -> float:
    """The p-value that all models rank alike: F of Iman & Davenport (Commun. Stat. A 9, 571, 1980), corrected for ties.

    It is never smaller than the chance that all data sets agree.
    """
    ranked = _ranks(scores)
    if (ranked == ranked[:, :1]).all():
        return 1.0  # all models tie on all data sets
    n, k = ranked.shape
    chi = float(stats.friedmanchisquare(*ranked.T).statistic)
    rest = n * (k - 1) - chi
    tail = float(special.fdtrc(k - 1, (k - 1) * (n - 1), (n - 1) * chi / rest)) if rest > 1e-9 else 0.0
    return max(tail, math.factorial(k) ** (1.0 - n))


def critical_difference(models: int, data: int) -> float:
    """The difference from which on mean ranks are told apart, all pairs together (Nemenyi, 1963)."""
    return float(stats.studentized_range.ppf(LEVEL, models, math.inf)) * math.sqrt(
        models * (models + 1) / (12 * data)
    )


def _sums(n: int) -> list[int]:
    """The number of the 2^n choices of ranks from 1 to n whose sum is 0, 1, 2, ..."""
    counts = [1]
    for rank in range(1, n + 1):
        longer = [*counts, *[0] * rank]
        counts = [
            without + (counts[total - rank] if total >= rank else 0) for total, without in enumerate(longer)
        ]
    return counts


def _ranks(scores: Sequence[Mapping[str, float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The ranks (data, models) on each data set, models by name; scores that differ by rounding tie."""
    table = [[-round(row[model], 12) for model in sorted(row)] for row in scores]
    return np.asarray(stats.rankdata(table, axis=1))
