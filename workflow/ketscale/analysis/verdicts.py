"""The words of verdicts, each with its meaning, and how intervals decide between them.

A study that makes k comparisons at 95 % would miss one truth or more with a probability of up to k times 5 %. So its
verdicts are accepted step by step (Holm, Scand. J. Stat. 6, 65, 1979), while every interval that is shown is one of 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ketscale.analysis import comparison, points
from ketscale.analysis.comparison import Compared
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate, exceeded

# A factor that is nearer to 1 is no reason to use more cores, or another simulator.
WORTH = 1.05
# A difference of shares that is smaller by all of its interval is none, in points.
POINTS = 2.0

FASTER, SLOWER, BETTER, WORSE, SAME = "faster", "slower", "better", "worse", "same"
DIFFERS = "differs"
CANNOT_TELL, NOT_COMPARABLE, FAILED, MISSING = "cannot tell", "not comparable", "failed", "missing"
# Why there is no verdict, other than by an interval.
FEW, BUSY, MOST_FAILED = f"fewer than {FEWEST} seeds", "busy machine", "more than half of the seeds failed"

# Every verdict, and no other word is one. All that is said of an interval holds for all comparisons of a study together.
MEANINGS = {
    FASTER: f"More than {WORTH:g} times as fast (or the threshold that was given), with the whole interval.",
    SLOWER: f"More than {WORTH:g} times as long (or the threshold that was given), with the whole interval.",
    BETTER: "The metric is better, with the whole interval.",
    WORSE: "The metric is worse, with the whole interval.",
    SAME: f"The whole interval lies within 1/{WORTH:g} to {WORTH:g} of a ratio, or within {POINTS:g} points of a share; "
    "of losses, they agree within the limit of their precision.",
    DIFFERS: "Runs that must compute the same have other first losses, so that their times say nothing.",
    CANNOT_TELL: "The interval reaches across one of these bounds, or there is none: the row says why.",
    NOT_COMPARABLE: "The runs are of other code, packages, hosts or data: the row says which.",
    FAILED: "Seeds diverged or ran out of memory: most of a side's, or so many that the verdict depends on them.",
    MISSING: "There is no result to compare, or nothing to compare it with.",
}  # fmt: skip
# Verdicts that rest on an interval.
DECIDED = (FASTER, SLOWER, BETTER, WORSE, SAME)


def holm(decide: Sequence[Callable[[float], str | None]]) -> list[str | None]:
    """Verdicts that hold together with 95 %; None where an interval gives none.

    decide: gives, for each comparison, the verdict of its interval at a level between 0 and 1, None if it has none. A
    wider interval may give no verdict, but no other one.
    """
    words: dict[int, str] = {}
    while open_numbers := [number for number in range(len(decide)) if number not in words]:
        level = 1 - (1 - LEVEL) / len(open_numbers)
        accepted = {number: word for number in open_numbers if (word := decide[number](level))}
        if not accepted:
            break
        words |= accepted
    return [words.get(number) for number in range(len(decide))]


def ratios(compared: Sequence[Compared]) -> list[tuple[str, str]]:
    """The verdicts on the ratios of one study, in their order, and why there is none."""
    able = [each.ratio for each in compared if each.ratio and not undecided(each)]
    words = iter(holm([partial(of_ratio, ratio) for ratio in able]))
    return [undecided(each) or (next(words) or CANNOT_TELL, "") for each in compared]


def of_ratio(ratio: Estimate, level: float, within: float = WORTH) -> str | None:
    """The verdict of a ratio's interval at a level; None if it reaches across a bound."""
    low, high = widened(ratio, level)
    if low > within:
        return FASTER
    if high < 1 / within:
        return SLOWER
    return SAME if low >= 1 / within and high <= within else None


def undecided(compared: Compared) -> tuple[str, str] | None:
    """The verdict on a comparison without a usable interval, and why; None if its interval is usable."""
    if compared.why:
        return NOT_COMPARABLE, compared.why
    if compared.flag.removesuffix(points.REFERENCE) in (points.BUSY, points.UNTIMED):
        return CANNOT_TELL, BUSY
    if compared.flag == comparison.FAILED:
        return FAILED, MOST_FAILED
    return (CANNOT_TELL, FEW) if compared.ratio is None or compared.ratio.low is None else None


def widened(ratio: Estimate, level: float) -> tuple[float, float]:
    """The ends of a ratio's interval at another level, by Student's t.

    Each outlier that was excluded costs two degrees of freedom: where the value was no outlier, the others look
    too much alike, and the wider the interval, the more that matters.
    """
    assert ratio.low is not None and ratio.high is not None
    freedom = ratio.freedom or max(0.5, ratio.n - 1 - 2 * ratio.outliers)
    factor = exceeded((1 - level) / 2, freedom) / exceeded((1 - LEVEL) / 2, freedom)
    # With two degrees of freedom and thousands of comparisons an end may be beyond all floats.
    ends = (factor * math.log(end / ratio.value) for end in (ratio.low, ratio.high))
    low, high = (ratio.value * math.exp(min(end, 700.0)) for end in ends)
    return low, high
