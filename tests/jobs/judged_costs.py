"""How far off the cost model is: groups of records are predicted from the others, by a model that never saw them.

python -m tests.jobs.judged_costs results-costs
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from ketscale.jobs.costs import samples as of_records
from ketscale.jobs.costs.model import CostModel, Place, left_out
from ketscale.jobs.costs.samples import Sample

Average = Callable[[Sequence[float]], float]

MEASURES = ("step_s", "wall_s", "memory_bytes")


@dataclass(frozen=True)
class Verdict:
    """How well runs of one place were predicted. Each group has one vote, as in the calibration.

    groups, runs: how many. error: the median over groups of the median relative error, coverage: the mean over groups of
    the share of runs in their 90 % intervals, width: the median over groups of the median ratio of an interval's end to
    its middle; each by the names of `MEASURES`.
    """

    place: Place
    groups: int
    runs: int
    error: dict[str, float]
    coverage: dict[str, float]
    width: dict[str, float]


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """Leave out every model's size in each layout, at all batches, with all seeds and simulators; and of cases that are
    alike all with the least, or with the largest, value of each number. A model is learned anew from the rest, and
    predicts them. What it predicts is within the range of the rest, or beyond it.
    """
    cases = [sample.case for sample in samples]
    scores: dict[Place, list[tuple[int, dict[str, tuple[float, float, float]]]]] = {
        "within": [],
        "beyond": [],
    }
    for number, rows in enumerate(left_out(cases)):
        outside = set(rows.tolist())
        # A seed alone says nothing of a new point.
        if any(
            case.point == cases[i].point for i in outside for k, case in enumerate(cases) if k not in outside
        ):
            continue
        model = CostModel(sample for i, sample in enumerate(samples) if i not in outside)
        told = [i for i in rows.tolist() if model.knows(cases[i])]
        for i, guess in zip(told, model.guess([cases[i] for i in told]) if told else [], strict=True):
            sample = samples[i]
            found = {
                "step_s": (model.interval(guess, "step_s"), sample.costs["step_s"]),
                "wall_s": (model.wall(guess, sample.steps, sample.epochs), sample.wall_s),
                "memory_bytes": (model.interval(guess, "memory_bytes"), sample.costs["memory_bytes"]),
            }
            off = {
                name: (
                    abs(interval.middle / value - 1),
                    float(interval.low <= value <= interval.high),
                    interval.high / interval.middle,
                )
                for name, (interval, value) in found.items()
            }
            scores[guess.place].append((number, off))
    return [_verdict(place, scored) for place, scored in scores.items() if scored]


def _verdict(place: Place, scored: Sequence[tuple[int, dict[str, tuple[float, float, float]]]]) -> Verdict:
    groups: dict[int, list[dict[str, tuple[float, float, float]]]] = {}
    for number, off in scored:
        groups.setdefault(number, []).append(off)

    def over(which: int, of_runs: Average, of_groups: Average) -> dict[str, float]:
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


def as_text(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a table in Markdown."""
    titles = {"step_s": "step", "wall_s": "whole run", "memory_bytes": "memory"}
    head = ["predicted", "groups", "runs", *(f"{title}: error, in 90 %, width" for title in titles.values())]
    rows = [
        [
            f"{one.place} the records", str(one.groups), str(one.runs),
            *(f"{one.error[n]:.0%}, {one.coverage[n]:.0%}, x{one.width[n]:.2f}" for n in titles),
        ]
        for one in verdicts
    ]  # fmt: skip
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    known = of_records.below(map(Path, sys.argv[1:]))
    print(f"{len(known)} records, {sum(one.quiet for one in known)} of them of a quiet machine", flush=True)
    print(as_text(judge(known)))
