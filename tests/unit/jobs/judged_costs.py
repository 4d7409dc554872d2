"""How far off forecasts are: groups of records are predicted from the others.

python -m tests.unit.jobs.judged_costs results-costs
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from ketscale.jobs.costs import Case, Costs, Sample, below


def left_out(cases: Sequence[Case]) -> list[list[int]]:
    """The numbers of the cases of a model with one value of one number, and of each of its sizes in each layout."""
    groups: dict[object, list[int]] = {}
    for i, case in enumerate(cases):
        size = tuple(one for one in case.numbers.items() if one[0] != "batch")
        for key in (*case.numbers.items(), (case.names["backend"], size)):
            groups.setdefault((case.names["model"], key), []).append(i)
    return [[*rows] for rows in dict.fromkeys(map(tuple, groups.values())) if len(rows) < len(cases)]


def judge(samples: Sequence[Sample]) -> str:
    """What is learned anew from the rest predicts each group of `left_out`, which has one vote, in words."""
    groups: list[list[tuple[float, bool]]] = []
    for rows in left_out([one.case for one in samples]):
        costs = Costs([one for i, one in enumerate(samples) if i not in rows])
        pairs = [(samples[i].seconds, at) for i in rows if (at := costs.seconds(samples[i].case))]
        if pairs:
            groups.append(
                [(math.exp(abs(math.log(at.middle / it))), at.low <= it <= at.high) for it, at in pairs]
            )
    error = median(median(factor for factor, _ in group) for group in groups)
    return f"off by {error:.2f}x, {fmean(fmean(inside for _, inside in of) for of in groups):.0%} within 90 % intervals"


if __name__ == "__main__":
    known = below(map(Path, sys.argv[1:]))
    print(f"{len(known)} records")
    print(judge(known))
