"""How far off forecasts are: groups of records are predicted from the others, and budgets from half of the records.

python -m tests.unit.jobs.judged_costs results-costs
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from ketscale.jobs.costs import Costs
from ketscale.jobs.costs.forecast import whole
from ketscale.jobs.costs.records import Case, Sample, below

MEASURES = {"pace_s": "step", "seconds": "whole run", "memory_bytes": "memory of a rank"}
# The factor between prediction and measurement, whether the interval covers, and the ratio of its upper end to its middle.
Off = dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Verdict:
    """How well runs were predicted. Each group has one vote.

    groups, runs: how many. error: the median over groups of the median factor between prediction and measurement, coverage:
    the mean over groups of the share of runs in their 90 % intervals, width: the median over groups of the median ratio of
    an interval's upper end to its middle; each by the names of `MEASURES`.
    """

    groups: int
    runs: int
    error: dict[str, float]
    coverage: dict[str, float]
    width: dict[str, float]


def judge(samples: Sequence[Sample]) -> Verdict:
    """What is learned anew from the rest predicts each group of `left_out`."""
    cases = [sample.case for sample in samples]
    scores: list[tuple[int, Off]] = []
    for number, rows in enumerate(left_out(cases)):
        rest = [sample for i, sample in enumerate(samples) if i not in rows]
        # A seed alone says nothing of a new point.
        if {cases[i].point for i in rows} & {sample.case.point for sample in rest}:
            continue
        costs = Costs(rest)
        told = [samples[i] for i in rows if costs.knows(cases[i])]
        for sample in told:
            found = costs.costs(sample.case)
            found["seconds"] = whole(found, sample.steps, sample.epochs or 0)
            measured = {**sample.costs, "seconds": sample.seconds}
            off = {}
            for name in MEASURES:
                one, value = found[name], measured[name]
                inside = float(one.low <= value <= one.high)
                off[name] = math.exp(abs(math.log(one.middle / value))), inside, one.high / one.middle
            scores.append((number, off))
    return _verdict(scores)


def left_out(cases: Sequence[Case]) -> list[list[int]]:
    """The numbers of the cases of a model with one value of one number, and of each of its sizes in each layout."""
    groups: dict[object, list[int]] = {}
    for i, case in enumerate(cases):
        size = tuple(one for one in case.numbers.items() if one[0] != "batch")
        for key in (*case.numbers.items(), (case.names["backend"], size)):
            groups.setdefault((case.names["model"], key), []).append(i)
    return [[*rows] for rows in dict.fromkeys(map(tuple, groups.values())) if len(rows) < len(cases)]


def _verdict(scored: Sequence[tuple[int, Off]]) -> Verdict:
    groups: dict[int, list[Off]] = {}
    for number, off in scored:
        groups.setdefault(number, []).append(off)

    def over(
        which: int, of_runs: Callable[[list[float]], float], of_groups: Callable[[list[float]], float]
    ) -> dict[str, float]:
        """The average over groups of the averages over their runs."""
        return {
            name: of_groups([of_runs([off[name][which] for off in group]) for group in groups.values()])
            for name in MEASURES
        }

    error, coverage, width = over(0, median, median), over(1, fmean, fmean), over(2, median, median)
    return Verdict(len(groups), len(scored), error, coverage, width)


def budgets(samples: Sequence[Sample], draws: int = 20) -> list[float]:
    """The totals of budgets over what was measured: half of the points, drawn at random, tell what the others take, and of
    these the cheapest are chosen that a quarter of their forecast total, half of it, and all of it pays for.
    """
    found = []
    points = sorted({sample.case.point for sample in samples})
    for seed in range(draws):
        seen = {*random.Random(seed).sample(points, len(points) // 2)}
        costs = Costs([sample for sample in samples if sample.case.point in seen])
        others = [one for one in samples if one.case.point not in seen and costs.knows(one.case)]
        planned = [whole(costs.costs(one.case), one.steps, one.epochs or 0).middle for one in others]
        for share in (0.25, 0.5, 1.0):
            left, pairs = (
                share * sum(planned),
                sorted(zip(planned, (one.seconds for one in others), strict=True)),
            )
            chosen = [pair for pair in pairs if (left := left - pair[0]) >= -1e-9]
            found.append(sum(each for each, _ in chosen) / sum(took for _, took in chosen))
    return found


def as_text(one: Verdict) -> str:
    """The verdict as a table in Markdown."""
    titles = (f"{title}: error, in 90 %, width" for title in MEASURES.values())
    head = ["groups", "runs", *titles]
    measures = (f"{one.error[n]:.2f}x, {one.coverage[n]:.0%}, {one.width[n]:.2f}x" for n in MEASURES)
    row = [str(one.groups), str(one.runs), *measures]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), row))


def main(known: Sequence[Sample]) -> None:
    """Print what forecasts are worth, of runs and of budgets."""
    totals = budgets(known)
    print(f"{len(known)} records, {sum(one.quiet for one in known)} of them of a quiet machine")
    print(f"{len(totals)} budgets: forecast {min(totals):.2f} to {max(totals):.2f} times what was measured")
    print(as_text(judge(known)))


if __name__ == "__main__":
    main(below(map(Path, sys.argv[1:])))
