"""How far off models of costs are: groups of records are predicted from the others, by a model that never saw them.

python -m tests.jobs.judged_costs results-costs

The rule that decides which model the package keeps was written before any of these numbers were seen. In the order of
their own code, the least first - a power law of sizes, the nearest records scaled by it, scikit-learn's Gaussian process, a
Gaussian process of our own - the first one wins of which, within the records and beyond them, the median error of each
measure is at most 1.05 times as large a factor as that of any other, and whose 90 % intervals cover no less than 90 % of
the groups, or than the best of the others if all cover less.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from ketscale.jobs.costs import samples as of_records
from ketscale.jobs.costs.interval import Interval
from ketscale.jobs.costs.model import CostModel, Place, left_out
from ketscale.jobs.costs.samples import Sample
from tests.jobs import cost_candidates

MEASURES = {"step_s": "step", "wall_s": "whole run", "memory_bytes": "memory of a rank"}
# What a model says of a run: the interval of each measure.
Told = dict[str, Interval]
# Learns from samples and tells of others.
Model = Callable[[Sequence[Sample]], Callable[[Sequence[Sample]], list[Told]]]


@dataclass(frozen=True)
class Verdict:
    """How well a model predicted the runs of one place. Each group has one vote.

    groups, runs: how many. error: the median over groups of the median factor between prediction and measurement, coverage:
    the mean over groups of the share of runs in their 90 % intervals, width: the median over groups of the median ratio of
    an interval's upper end to its middle; each by the names of `MEASURES`.
    """

    place: Place
    groups: int
    runs: int
    error: dict[str, float]
    coverage: dict[str, float]
    width: dict[str, float]


Scores = dict[Place, list[tuple[int, dict[str, tuple[float, float, float]]]]]


def judge(samples: Sequence[Sample], models: dict[str, Model]) -> dict[str, list[Verdict]]:
    """Leave out every model's size in each layout, at all batches, with all seeds and simulators; and of cases that are
    alike all with the least, or with the largest, value of each number. Each model learns anew from the rest, and predicts
    them. What it predicts is within the range of the rest, or beyond it.
    """
    cases = [sample.case for sample in samples]
    scores: dict[str, Scores] = {name: {"within": [], "beyond": []} for name in models}
    for number, rows in enumerate(left_out(cases)):
        outside = set(rows.tolist())
        # A seed alone says nothing of a new point.
        if any(
            case.point == cases[i].point for i in outside for k, case in enumerate(cases) if k not in outside
        ):
            continue
        rest = [sample for i, sample in enumerate(samples) if i not in outside]
        known = cost_candidates.Known(rest)
        wanted = [samples[i] for i in rows.tolist() if known.knows(cases[i])]
        for name, model in models.items():
            for sample, told in zip(wanted, model(rest)(wanted) if wanted else [], strict=True):
                measured = {**sample.costs, "wall_s": sample.wall_s}
                off = {
                    measure: (
                        math.exp(abs(math.log(told[measure].middle / measured[measure]))),
                        float(told[measure].low <= measured[measure] <= told[measure].high),
                        told[measure].high / told[measure].middle,
                    )
                    for measure in MEASURES
                }
                scores[name][known.place(sample.case)].append((number, off))
    return {
        name: [_verdict(place, scored) for place, scored in of.items() if scored]
        for name, of in scores.items()
    }


def _verdict(place: Place, scored: Sequence[tuple[int, dict[str, tuple[float, float, float]]]]) -> Verdict:
    groups: dict[int, list[dict[str, tuple[float, float, float]]]] = {}
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

    return Verdict(
        place,
        len(groups),
        len(scored),
        over(0, median, median),
        over(1, fmean, fmean),
        over(2, median, median),
    )


def as_text(verdicts: dict[str, list[Verdict]]) -> str:
    """The verdicts as a table in Markdown."""
    head = [
        "predicted",
        "groups",
        "runs",
        "model",
        *(f"{title}: error, in 90 %, width" for title in MEASURES.values()),
    ]
    rows = [
        [
            f"{one.place} the records", str(one.groups), str(one.runs), name,
            *(f"{one.error[n]:.2f}x, {one.coverage[n]:.0%}, {one.width[n]:.2f}x" for n in MEASURES),
        ]
        for place in ("within", "beyond") for name, of in verdicts.items() for one in of if one.place == place
    ]  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def own(samples: Sequence[Sample]) -> Callable[[Sequence[Sample]], list[Told]]:
    """The Gaussian process of `jobs.costs`."""
    model = CostModel(samples)

    def tell(wanted: Sequence[Sample]) -> list[Told]:
        return [
            {
                "step_s": model.interval(guess, "step_s"),
                "memory_bytes": model.interval(guess, "memory_bytes"),
                "wall_s": model.wall(guess, sample.steps, sample.epochs),
            }
            for sample, guess in zip(wanted, model.guess([one.case for one in wanted]), strict=True)
        ]

    return tell


if __name__ == "__main__":
    found = of_records.below(map(Path, sys.argv[1:]))
    print(f"{len(found)} records, {sum(one.quiet for one in found)} of them of a quiet machine", flush=True)
    print(as_text(judge(found, {**cost_candidates.ALL, "own Gaussian process": own})))
