"""The words of verdicts, each with its meaning, and how intervals decide between them.

A study that makes k comparisons at 95 % would miss one truth or more with a probability of up to k times 5 %. So its
verdicts are accepted step by step (Holm, Scand. J. Stat. 6, 65, 1979), while every interval that is shown is one of 95 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ketscale.analysis import comparison
from ketscale.analysis.comparison import Compared
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate, exceeded
from ketscale.analysis.points import SHARED_RATIOS

# A smaller factor is no reason to use twice the cores.
WORTH = 1.05
# An interval that reaches further than this factor from 1 says nothing of a growth.
NARROW = 1.5

PAYS, PAYS_NOT, NO_GAIN = "pays", "does not pay", "no clear gain"
SLOWER, NOT_SLOWER, NO_LOSS = "slower", "not slower", "no clear loss"
FASTER, UNCHANGED = "faster", "no clear change"
LESS, ABOUT, MORE_THAN = "less than in proportion", "about in proportion", "more than in proportion"
BETTER, WORSE, EQUAL, CANNOT_TELL, NO_CONTROL = "better", "worse", "equal", "cannot tell", "no control"
FALLS, FALLS_NOT, NO_FALL = "falls", "does not fall", "no clear fall"
HELD, NOT_HELD, OTHER_LOSSES = "held", "not held", "other losses"
UNDECIDED = "undecided"
FEW, DISTURBED, APART = (
    "undecided: fewer than 3 seeds",
    "undecided: busy machine",
    "undecided: not comparable",
)
FAILED, OPEN = "undecided: failed seeds", "open"

# Every verdict, and no other word is one. All that is said of an interval holds for all comparisons of a study together.
MEANINGS = {
    PAYS: f"The speedup is above {WORTH:g} with its whole interval.",
    PAYS_NOT: "The speedup is at most 1 with its whole interval.",
    NO_GAIN: f"The interval of the speedup reaches from {WORTH:g} or below to above 1, or lies between the two.",
    SLOWER: f"The factor by which a step takes longer is above {WORTH:g}, or the threshold that was given, with its whole interval.",
    NOT_SLOWER: "The factor by which a step takes longer is at most 1 with its whole interval.",
    NO_LOSS: f"The interval of that factor reaches from {WORTH:g} or below to above 1, or lies between the two.",
    FASTER: "A step takes a smaller share of the time than the threshold allows, with its whole interval.",
    UNCHANGED: "The interval of the change reaches into what counts as none.",
    LESS: f"The time grows at least {WORTH:g} times less than what is varied, with its whole interval.",
    ABOUT: f"The interval of the growth reaches into what counts as proportional, and no further than {NARROW:g} times from it.",
    MORE_THAN: f"The time grows more than {WORTH:g} times as much as what is varied, with its whole interval.",
    BETTER: "The metric is better with its whole interval.",
    WORSE: "The metric is worse with its whole interval.",
    EQUAL: "The whole interval of the difference is within 2 points.",
    CANNOT_TELL: "The interval of the difference reaches from worse to better, or a few data sets do not all say the same.",
    NO_CONTROL: "There is nothing to compare the model with.",
    FALLS: f"The squared gradient is less than {1 / WORTH:.2f} times as large with each qubit or layer, with its whole interval.",
    FALLS_NOT: f"That factor is above {1 / WORTH:.2f} with its whole interval.",
    NO_FALL: f"The interval of that factor reaches from {1 / WORTH:.2f} or below to above it.",
    HELD: "Runs that must compute the same have the same first losses, within the limit of their precision.",
    NOT_HELD: "Some runs that must compute the same have other first losses.",
    OTHER_LOSSES: "The run computes something else than its counterpart, so that their times say nothing.",
    UNDECIDED: "The interval is too wide.",
    FEW: f"Fewer than {FEWEST} seeds have a result on both sides, so there is no interval.",
    DISTURBED: "Every run of a side was timed on a busy machine, or beside other runs.",
    APART: "The runs are of other code, packages, hosts or data, or their test is not new; the answer says which.",
    FAILED: "Seeds diverged, ran out of memory or stopped: more than half of a side's; or, if they count as wrong, the others decide nothing.",
    OPEN: "What is asked for has not been measured yet.",
}


def holm(decide: Sequence[Callable[[float], str | None]]) -> list[str | None]:
    """Verdicts that hold together with 95 %; None where an interval decides nothing.

    decide: gives, for each comparison, the verdict of its interval at a level between 0 and 1, None if it has none. A
    wider interval may decide less, but nothing else.
    """
    found: dict[int, str] = {}
    while left := [number for number in range(len(decide)) if number not in found]:
        level = 1 - (1 - LEVEL) / len(left)
        accepted = {number: word for number in left if (word := decide[number](level))}
        if not accepted:
            break
        found |= accepted
    return [found.get(number) for number in range(len(decide))]


def gains(found: Sequence[Compared]) -> list[str]:
    """The verdicts on the speedups of one study, in their order: whether each pays."""
    return changes(found, WORTH, 1, PAYS, PAYS_NOT, NO_GAIN)


def losses(found: Sequence[Compared]) -> list[str]:
    """The verdicts on the speedups of one study, in their order: whether each step is slower."""
    return changes(found, 1, 1 / WORTH, NOT_SLOWER, SLOWER, NO_LOSS)


def proportions(found: Sequence[Compared]) -> list[str]:
    """The verdicts on the speedups of one study at equal work, in their order: how a step's time grows with its work."""
    words = changes(found, WORTH, 1 / WORTH, LESS, MORE_THAN, ABOUT)
    return [
        UNDECIDED if word == ABOUT and not _narrow(each.ratio) else word
        for word, each in zip(words, found, strict=True)
    ]


def _narrow(ratio: Estimate | None) -> bool:
    """Whether the interval of a ratio is within `NARROW` times of 1, either way."""
    ends = (ratio.low, ratio.high) if ratio else ()
    return all(end is not None and 1 / NARROW < end < NARROW for end in ends)


def changes(
    found: Sequence[Compared], most: float, least: float, above: str, below: str, between: str
) -> list[str]:
    """The verdicts on ratios: whether each is above `most`, at most `least`, or neither."""
    decide = partial(beyond, most=most, least=least, above=above, below=below)
    able = [partial(decide, each.ratio) for each in found if each.ratio and not undecided(each)]
    words = iter(holm(able))
    return [undecided(each) or next(words) or between for each in found]


def beyond(ratio: Estimate, level: float, most: float, least: float, above: str, below: str) -> str | None:
    """The verdict of a ratio's interval at a level, as `changes` says it; None if it decides nothing."""
    low, high = widened(ratio, level)
    return above if low > most else below if high <= least else None


def undecided(found: Compared) -> str:
    """Why a comparison decides nothing, as a verdict; '' if its interval may decide."""
    if found.why:
        return APART
    if found.flag in SHARED_RATIOS:
        return DISTURBED
    if found.flag == comparison.FAILED:
        return FAILED
    return FEW if found.ratio is None or found.ratio.low is None else ""


def widened(ratio: Estimate, level: float) -> tuple[float, float]:
    """The ends of a ratio's interval at another level, by Student's t.

    Each outlier that was left out costs two degrees of freedom: where a value was left out that was none, the others look
    too much alike, and the wider the interval, the more that matters.
    """
    assert ratio.low is not None and ratio.high is not None
    freedom = max(0.5, ratio.n - 1 - 2 * ratio.outliers)
    factor = exceeded((1 - level) / 2, freedom) / exceeded((1 - LEVEL) / 2, freedom)
    low, high = (ratio.value * (end / ratio.value) ** factor for end in (ratio.low, ratio.high))
    return low, high
