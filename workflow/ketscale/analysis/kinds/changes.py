"""Changes, one at a time: what each does to the time of a step and of a sample, and to the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ketscale.analysis import verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import Reference, Speed
from ketscale.analysis.points import (
    HOLLOW_RATIOS,
    Group,
    Point,
    Row,
    point_of,
    size_words,
    sizes_of,
    usable,
)
from ketscale.analysis.wording import digits, interval, listed, sentence
from ketscale.config import TOLERANCE, Config
from ketscale.grid import POINT, Run, Study
from ketscale.measure import parity
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BASELINE = "baseline"


class Mark(NamedTuple):
    """How a column of ratios is drawn; `offset`: below the middle of its row, where both are."""

    column: str
    label: str
    marker: str
    colour: str
    offset: float


MARKS = (
    Mark("per_step", "per step", "o", style.PALETTE[0], -0.15),
    Mark("per_sample", "per sample", "s", style.PALETTE[1], 0.15),
)


class Change(NamedTuple):
    """What differs from the baseline: an axis, a size, or the one setting in which two blocks of the config differ."""

    what: str
    before: Any
    after: Any

    @property
    def words(self) -> str:
        """The values, such as '4 -> 1'."""
        return " -> ".join(_word(value) for value in (self.before, self.after))


class Changes(Speed):
    """The first point of a study is its baseline; each other point differs from it in one axis."""

    name = "changes"

    def __init__(self) -> None:
        caption = (
            "What one change at a time does to the time of a training step, and of a sample where the batch changes. "
            "Beside it: whether the first losses remain those of the baseline. A change of batch, workload or model is "
            "other work, whose losses say nothing."
        )
        self.figure = Figure(self.name, "One change at a time", caption, (self.name,), self.draw)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require a baseline, and points that differ from it in one axis and have a seed of it."""
        first = study.runs[0]
        seeds: dict[Point, list[Run]] = {}
        for run in study.runs:
            seeds.setdefault(point_of(run), []).append(run)
        if len(seeds) < 2:
            yield "a study of kind changes compares points with its first one, but has no other; give it more"
        for runs in seeds.values():
            axes = [name for name in POINT if getattr(runs[0], name) != getattr(first, name)]
            if len(axes) > 1:
                told = ", ".join(
                    f"{name} {getattr(first, name)} -> {getattr(runs[0], name)}" for name in axes
                )
                yield f"each point must differ from the first one in one axis, and one of them in {told}; make them points each"
            if not {run.seed for run in runs} & {run.seed for run in seeds[point_of(first)]}:
                yield f"{runs[0].name} has no seed in common with the first point, so there is no ratio; give it one"

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Reference | None:
        """The study's first point."""
        return Reference.of(points.get(asked[0]))

    def compared(self, study: Study, group: Group, collected: Collected) -> Mapping[str, Any]:
        """The change, and the largest relative difference of the first losses from the baseline's of the same seed."""
        base, records = study.runs[0], collected.records
        bases = {row["seed"]: Run.of(row) for row in usable(collected.points.get(point_of(base), ()))[0]}
        pairs = [(Run.of(row), bases[row["seed"]]) for row in usable(group)[0] if row["seed"] in bases]
        found = [parity.between((run, records[run]), (other, records[other])) for run, other in pairs]
        made = change(collected.config, base, Run.of(group[0]))
        return {
            "varied": made.what if made else BASELINE,
            "value": made.words if made else base.simulator,
            "difference": max((value for value in found if value is not None), default=None),
        }

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """How many changes pay by the time of a sample, which the most, and which costs the most."""
        points = _relative(inputs.points(study.name))
        made = points[points["varied"] != BASELINE]
        if made.empty:
            return Answer("No change has been timed together with the baseline yet.", verdicts.OPEN)
        gains = [
            verdicts.estimate(row, "speedup_same").times(row["per_step"] / row["per_sample"])
            for _, row in made.iterrows()
        ]
        count = verdicts.decided(gains)
        gains = [verdicts.together(found, count) for found in gains]
        judged = [
            verdicts.gain(found, row["flag"]) for found, (_, row) in zip(gains, made.iterrows(), strict=True)
        ]
        ranked = sorted(zip(gains, judged, range(len(made)), strict=True), key=lambda each: -each[0].value)
        tally = listed(f"{word} ({judged.count(word)})" for word in dict.fromkeys(each[1] for each in ranked))
        told = []
        for found, verdict, number in (ranked[0], *ranked[-1:] * (len(ranked) > 1)):
            row = made.iloc[number]
            told.append(
                f"{row['varied']} {row['value']} is {digits(found.value)} times as fast a sample ({interval(found)}): "
                f"{verdicts.CLAUSES[verdict]}, {_numbers(row)}"
            )
        first = study.runs[0]
        size = size_words(inputs.config, first.workload, first.size)
        base = ", ".join(filter(None, (size, f"batch {first.batch}", first.simulator)))
        clauses = [
            f"{tally}",
            *(f"{rank} {text}" for rank, text in zip(("most of all,", "least of all,"), told, strict=False)),
        ]
        lead = f"of {len(made)} changes to {first.model} on {first.workload} ({base})"
        found, verdict, number = ranked[0]
        of = f"speed of a sample, {made.iloc[number]['varied']} {made.iloc[number]['value']}"
        return Answer.by(sentence(lead, clauses) + verdicts.about_together(count), verdict, of, found)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Times relative to the baseline on a logarithmic axis, with the difference of losses as text."""
        import matplotlib.pyplot as plt
        import pandas as pd

        found = [(name, _relative(points)) for name, points in inputs.of(self.name)]
        studies = [(name, points) for name, points in found if len(points)]
        if not studies:
            return style.empty(inputs, inputs.asked(self.name))
        rows = [len(points) + 1 for _, points in studies]
        figure, grid = plt.subplots(
            len(studies),
            figsize=(9.5, 0.6 * len(studies) + 0.5 * sum(rows)),
            squeeze=False,
            height_ratios=rows,
            layout="constrained",
        )
        for axes, (name, points) in zip(grid[:, 0], studies, strict=True):
            _draw(axes, points, name)
        drawn = pd.concat([points for _, points in studies])
        note = (
            "Mean of pairs of the same seed with its 95 % interval (none below 3 seeds); 1 is the baseline, below 1 "
            "is faster. Right: largest relative difference of the first losses from the baseline's"
        )
        style.footnote(figure, drawn, inputs, [name for name, _ in studies], note)
        return figure, drawn


def change(config: Config, base: Run, run: Run) -> Change | None:
    """In what a run differs from the baseline's; None for the baseline itself. They differ in one axis at most."""
    axis = next((name for name in POINT if getattr(base, name) != getattr(run, name)), None)
    if axis is None:
        return None
    before, after = (_content(config, each, axis) for each in (base, run))
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if len(differing) == 1:
        return Change(differing[0], before.get(differing[0]), after.get(differing[0]))
    return Change(axis, getattr(base, axis), getattr(run, axis))


def _content(config: Config, run: Run, axis: str) -> dict[str, Any]:
    """The settings of the block that an axis of a run names, or its sizes. The tolerance follows from the others."""
    if axis == "size":
        return dict(sizes_of(config, run))
    if axis == "simulator" and run.simulator in config.simulators:
        content = config.simulators[run.simulator].content()
        return {name: value for name, value in content.items() if name != TOLERANCE}
    if axis == "protocol":
        return config.protocols[run.protocol].content()
    if axis in ("workload", "model"):
        kind, block = (config.workloads if axis == "workload" else config.models)[getattr(run, axis)]
        return {"kind": kind, **block.content()}
    return {}


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _relative(points: pd.DataFrame) -> pd.DataFrame:
    """The points that have a ratio, with their time per step and per sample over the baseline's."""
    drawn = points[points["speedup_same"].notna() & points["varied"].notna()].reset_index(drop=True)
    samples = drawn["samples_per_s"] * drawn["step_s"]
    base = samples[drawn["varied"] == BASELINE]
    # The table has speedups; the figure shows how many times as long a step takes.
    for column, of in (("", ""), ("_low", "_high"), ("_high", "_low")):
        drawn[f"per_step{column}"] = 1 / drawn[f"speedup_same{of}"]
        drawn[f"per_sample{column}"] = drawn[f"per_step{column}"] * (
            base.iloc[0] / samples if len(base) else 1
        )
    return drawn


def _draw(axes: Axes, points: pd.DataFrame, name: str) -> None:
    for height, (_, row) in enumerate(points.iterrows()):
        apart = not math.isclose(row["per_sample"], row["per_step"], rel_tol=1e-6)
        for mark in MARKS if apart else MARKS[:1]:
            y = height + mark.offset * apart
            low, middle, high = (row[f"{mark.column}{end}"] for end in ("_low", "", "_high"))
            axes.hlines(y, low, high, color=mark.colour, lw=2)
            style.dot(axes, middle, y, mark.colour, row["flag"] in HOLLOW_RATIOS, marker=mark.marker, ms=7)
            axes.annotate(
                f"{duration(row['step_s'])} a step" if row["varied"] == BASELINE else _factor(middle),
                (style.end(high, middle), y),
                (9, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                bbox={"fc": "white", "ec": "none", "pad": 0.5},
            )
        axes.annotate(
            _numbers(row),
            (1.02, height),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
            color=style.SOFT,
        )
    axes.axvline(1, ls="--", color=style.FRAME, lw=1, zorder=0)
    columns = [f"{mark.column}{end}" for mark in MARKS for end in ("_low", "", "_high")]
    low, high = points[columns].min().min(), points[columns].max().max()
    # The words beside the last marker need room.
    axes.set_xlim(low / 1.3, high * max(2.0, (high / low) ** 0.25))
    style.log_factors(axes.xaxis)
    names = [f"{row['varied']}: {row['value'].replace('->', '→')}" for _, row in points.iterrows()]
    axes.set_yticks(range(len(points)), names)
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.set(title=name, xlabel="time relative to the baseline (log scale)")
    axes.grid(False, axis="y")
    for mark in MARKS:
        axes.plot([], [], ls="", marker=mark.marker, color=mark.colour, label=mark.label)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def _factor(ratio: float) -> str:
    """A ratio of times in words."""
    return f"{digits(max(ratio, 1 / ratio))}x {'faster' if ratio < 1 else 'as long'}"


def _numbers(row: pd.Series) -> str:
    """Whether the losses are those of the baseline."""
    if row["varied"] == BASELINE:
        return ""
    difference = row["difference"]
    if difference != difference:
        return "other work"
    if not difference:
        return "same numbers, bitwise"
    same = difference <= parity.ACROSS_SIMULATORS
    return f"same numbers (to {difference:.0e})" if same else f"losses differ by {difference:.1e}"


CHANGES = Changes()
