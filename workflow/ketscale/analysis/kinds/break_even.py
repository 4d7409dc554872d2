"""Break-even: from how much work per rank several ranks pay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import Speed, one_core
from ketscale.analysis.points import BUSY_RATIOS, HOLLOW_RATIOS, size_axes, variants
from ketscale.analysis.wording import digits, distinct, interval, sentence, subject, where
from ketscale.config import Config
from ketscale.grid import POINT, Study
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# A verdict of its own.
NEVER = "never in the range measured"
# The columns that are equal for points that differ only in their layout.
_WORK = [name for name in POINT if name != "layout"]
NOTE = (
    "Work per rank: the step time on one rank with one thread, divided by the number of workers. Ratios: mean of pairs "
    "of the same seed with its 95 % interval (none below 3 seeds); where a line crosses 1, more ranks begin to pay"
)


class BreakEven(Speed):
    """Speedup against the work per rank, which varies with batch, size and simulator."""

    name = "break-even"
    varies = "layout"

    def __init__(self) -> None:
        caption = (
            "From how much work per rank more ranks pay: speedup against the time that each rank's share would take "
            "alone, for every layout with several workers."
        )
        self.figure = Figure(self.name, "Break-even", caption, (self.name,), self.draw)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require several layouts, one of them on one core as the baseline."""
        if len({run.layout for run in study.runs}) < 2:
            yield "a study of kind break-even compares layouts, but has only one; give several backends"
        yield from one_core(study)

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """From how much work per rank on each layout pays, with the points on both sides."""
        points = with_work(inputs.points(study.name))
        if points.empty:
            return Answer(
                "No layout with several workers has been timed together with one yet.", verdicts.OPEN
            )
        along = ("batch", "simulator", *size_axes(inputs.config))
        points = points.assign(
            line=points["layout"].map(where)
            + distinct(points, inputs.config, ("layout", *along)).map(_after),
            words=distinct(points, inputs.config, ("layout",)).str.removeprefix("with "),
        )
        quiet = points[~points["flag"].isin(BUSY_RATIOS)]
        if quiet.empty:
            return Answer(
                "Every point was timed on a busy machine, so where ranks pay is not known.",
                verdicts.DISTURBED,
            )
        count = verdicts.decided(verdicts.estimate(row, "speedup_same") for _, row in quiet.iterrows())
        found = [
            _begins(str(line), _along(group), count) for line, group in quiet.groupby("line", sort=False)
        ]
        lead = min(found, key=lambda each: math.inf if each.effect is None else each.effect)
        about = f"for {subject(points, inputs.config, ('layout', *along))}, by the time that a rank's share takes alone"
        return replace(
            lead, text=sentence(about, [each.text for each in found]) + verdicts.about_together(count)
        )

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Speedup of each layout with several workers against the work per rank, and where it crosses 1."""
        import matplotlib.pyplot as plt

        drawn = with_work(inputs.points_of(self.name))
        if drawn.empty:
            return style.empty(inputs, inputs.asked(self.name))
        figure, axes = plt.subplots(figsize=(9.5, 4.2), layout="constrained")
        # Along a line the work per rank grows, through batch, simulator or size.
        others = variants(
            drawn, inputs.config, but=("layout", "batch", "simulator", *size_axes(inputs.config))
        )
        drawn["line"] = drawn["layout"] + others.map(lambda words: f", {words}" if words else "")
        for number, (name, chosen) in enumerate(drawn.groupby("line", sort=True)):
            _draw(axes, _along(chosen), str(name), number)
        axes.axhline(1, ls="--", color=style.FRAME, lw=1)
        axes.set(xlabel="work per rank in a step (time, log scale)", ylabel="speedup over one rank")
        style.log_seconds(axes.xaxis)
        axes.set_ylim(0, 1.15 * max(1.0, drawn[["speedup_same", "speedup_same_high"]].max().max()))
        style.legend(axes)
        style.footnote(figure, drawn, inputs, drawn["study"].unique(), NOTE)
        crossings = {name: crossing(chosen) for name, chosen in drawn.groupby("line")}
        return figure, drawn.assign(pays_from_s=drawn["line"].map(crossings))


def with_work(points: pd.DataFrame) -> pd.DataFrame:
    """The points with several workers and a baseline; `work_s` is the step time on one rank over the workers."""
    alone = points[points["workers"] == 1][["study", *_WORK, "step_s"]].rename(columns={"step_s": "alone_s"})
    several = points[(points["workers"] > 1) & points["speedup_same"].notna()]
    drawn = several.merge(alone, on=["study", *_WORK])
    return drawn.assign(work_s=drawn["alone_s"] / drawn["workers"])


def crossing(chosen: pd.DataFrame) -> float | None:
    """The work in seconds from which the speedup stays above 1; None if the point with the most work is not above 1.

    Interpolated between points, on a logarithmic scale of work. If every point pays, the smallest work measured.
    """
    import numpy as np

    ordered = _along(chosen)
    work, speedup = ordered["work_s"].to_numpy(), ordered["speedup_same"].to_numpy()
    if speedup[-1] <= 1:
        return None
    below = np.flatnonzero(speedup <= 1)
    if len(below) == 0:
        return float(work[0])
    last = below[-1]
    share = (1 - speedup[last]) / (speedup[last + 1] - speedup[last])
    return float(np.exp(np.log(work[last]) + share * (np.log(work[last + 1]) - np.log(work[last]))))


def _along(points: pd.DataFrame) -> pd.DataFrame:
    """The points of a line in the order of their work; of equal work, the smaller speedup first."""
    return points.sort_values(["work_s", "speedup_same"])


def _after(words: str) -> str:
    return f" {words}" if words else ""


def _begins(line: str, ordered: pd.DataFrame, comparisons: int) -> Answer:
    """The clause about one line, in the order of its work: where the speedup passes 1, and from where it surely pays."""
    ratios = [
        verdicts.together(verdicts.estimate(row, "speedup_same"), comparisons)
        for _, row in ordered.iterrows()
    ]
    judged, points, from_s = (
        [verdicts.gain(ratio) for ratio in ratios],
        list(ordered.iterrows()),
        crossing(ordered),
    )
    sure = len(judged)
    while sure and judged[sure - 1] == verdicts.PAYS:
        sure -= 1

    def at(number: int) -> str:
        point, ratio = points[number][1], ratios[number]
        named = f"{point['words']}: " if point["words"] else ""
        return f"{duration(point['work_s'])} ({named}{digits(ratio.value)} times as fast, {interval(ratio)})"

    verdict = verdicts.PAYS if sure < len(judged) else judged[-1]
    of, n = f"work per rank (s) from which {line} pay", ratios[-1].n
    if from_s is None:
        if verdict == verdicts.PAYS_NOT:
            return Answer(f"{line} never pay in the range measured, up to {at(-1)}", NEVER, of, n=n)
        unsure = f"{line} are not seen to pay in the range measured, up to {at(-1)}"
        return Answer(f"{unsure}: {verdicts.CLAUSES[verdict]}", verdict, of, n=n)
    if sure == 0:
        text = f"{line} surely pay in the whole range measured, from {at(0)}"
        return Answer(text, verdict, of, from_s, n=n)
    last = max((i for i, (_, row) in enumerate(points) if row["speedup_same"] <= 1), default=-1)
    where_from = (
        f"are faster on average in the whole range measured, from {at(0)}"
        if last < 0
        else f"begin to be faster on average at about {duration(from_s)}, between {at(last)} and {at(last + 1)}"
    )
    told = (
        f"surely pay from {at(sure)} on"
        if sure < len(judged)
        else f"at the largest measured, {at(-1)}: {verdicts.CLAUSES[verdict]}"
    )
    return Answer(f"{line} {where_from}, and {told}", verdict, of, from_s, n=n)


def _draw(axes: Axes, chosen: pd.DataFrame, name: str, number: int) -> None:
    pays = crossing(chosen)
    says = "not above 1 here" if pays is None else f"above 1 from {duration(pays)}"
    look: dict[str, Any] = style.line(number)
    marker = style.marker(number)
    axes.plot(chosen["work_s"], chosen["speedup_same"], lw=1.5, alpha=0.6, **look)
    axes.vlines(
        chosen["work_s"], chosen["speedup_same_low"], chosen["speedup_same_high"], color=look["color"], lw=1.5
    )
    for _, point in chosen.iterrows():
        hollow = point["flag"] in HOLLOW_RATIOS
        style.dot(
            axes,
            point["work_s"],
            point["speedup_same"],
            look["color"],
            hollow,
            marker=marker,
            ms=7,
            zorder=3,
        )
    axes.plot([], [], marker=marker, label=f"{name}:\n{says}", **look)


BREAK_EVEN = BreakEven()
