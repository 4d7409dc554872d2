"""What an interval decides: whether a factor is worth its cost, with several comparisons of a study taken together.

A study that makes k comparisons would miss one truth or more with a probability of up to k times 5 %. So its answer
widens every interval until all of them hold together with 95 % (Bonferroni; Dunn, J. Am. Stat. Assoc. 56, 52, 1961),
and decides by these. Tables and figures show each interval by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate, exceeded
from ketscale.analysis.points import SHARED_RATIOS

if TYPE_CHECKING:
    import pandas as pd

# A smaller factor is no reason to use twice the cores.
WORTH = 1.05

PAYS, PAYS_NOT, NO_GAIN = "pays", "does not pay", "no clear gain"
FEW, DISTURBED, OPEN = "undecided: fewer than 3 seeds", "undecided: busy machine", "open"
# In a sentence, after a colon.
CLAUSES = {
    PAYS: "it pays",
    PAYS_NOT: "it does not pay",
    NO_GAIN: "no clear gain",
    FEW: "undecided, with fewer than 3 seeds",
    DISTURBED: "undecided, since the machine was busy",
}


def estimate(row: Mapping[str, Any] | pd.Series, column: str, n: str = "") -> Estimate:
    """The estimate in the columns COLUMN, COLUMN_low and COLUMN_high of a table's row; n: the column of its seeds."""
    low, high = (float(row[f"{column}_{end}"]) for end in ("low", "high"))
    known = not (math.isnan(low) or math.isnan(high))
    count = int(row[n or f"{column}_n"])
    return Estimate(float(row[column]), low if known else None, high if known else None, count)


def decided(found: Iterable[Estimate]) -> int:
    """The number of comparisons that have an interval, and so can be wrong about the truth."""
    return sum(each.low is not None for each in found)


def together(found: Estimate, comparisons: int, of_ratio: bool = True) -> Estimate:
    """The estimate with its interval widened, so that those of so many comparisons hold together with 95 %.

    The distance of each end from the value (for a ratio, of its logarithm) grows with the quantile of Student's t. Exact
    for intervals of t; of the bootstrap, from 15 seeds on, an approximation.
    """
    if found.low is None or found.high is None or comparisons < 2:
        return found
    tail, degrees = (1 - LEVEL) / 2, found.n - 1
    factor = exceeded(tail / comparisons, degrees) / exceeded(tail, degrees)
    if of_ratio:
        low, high = (found.value * (end / found.value) ** factor for end in (found.low, found.high))
    else:
        low, high = (found.value + factor * (end - found.value) for end in (found.low, found.high))
    return Estimate(found.value, low, high, found.n)


def about_together(comparisons: int) -> str:
    """The sentence that says how intervals were widened; empty for a single comparison."""
    if comparisons < 2:
        return ""
    return f" The intervals of {comparisons} comparisons are widened to hold together with 95 % (Bonferroni)."


def gain(found: Estimate, flag: Any = "") -> str:
    """Whether a factor, such as a speedup, pays: it does if its whole interval is above `WORTH`.

    flag: of the point. A factor from a busy machine decides nothing.
    """
    if flag in SHARED_RATIOS:
        return DISTURBED
    if found.low is None or found.high is None or found.n < FEWEST:
        return FEW
    if found.low > WORTH:
        return PAYS
    return PAYS_NOT if found.high <= 1 else NO_GAIN
