"""How far off the cost model is: groups of records are predicted from the others, by a model that never saw them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ketscale.jobs.costs.model import CostModel, Place, left_out
from ketscale.jobs.costs.samples import Sample

MEASURES = ("step_s", "wall_s", "memory_bytes")


@dataclass(frozen=True)
class Verdict:
    """How well runs of one place were predicted.

    groups, runs: how many. error: the median relative error, coverage: the share of runs in their 90 % intervals, width:
    the median ratio of an interval's end to its middle; each by the names of `MEASURES`.
    """

    place: Place
    groups: int
    runs: int
    error: dict[str, float]
    coverage: dict[str, float]
    width: dict[str, float]


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """Leave out every model's size in each layout, at all batches, with all seeds and simulators; and of cases that are
    alike all with the least, or with the largest, value of each number, and all of each backend. A model is learned
    anew from the rest, and predicts them. What it predicts is within the range of the rest, or beyond it.
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
    def over(which: int) -> dict[str, list[float]]:
        return {name: [off[name][which] for _, off in scored] for name in MEASURES}

    return Verdict(
        place,
        len({number for number, _ in scored}),
        len(scored),
        {name: median(values) for name, values in over(0).items()},
        {name: math.fsum(values) / len(values) for name, values in over(1).items()},
        {name: median(values) for name, values in over(2).items()},
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
