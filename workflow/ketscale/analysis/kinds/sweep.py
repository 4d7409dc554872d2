"""Sweeps of one axis: the batch, or a size axis of the families."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ketscale.analysis import laws, verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import Speed
from ketscale.analysis.laws.drawing import with_regimes
from ketscale.analysis.points import HOLLOW, SHARED_RATIOS, TIMED_OUT, sizes_of, variants
from ketscale.analysis.wording import digits, interval, sentence, subject
from ketscale.config import Config, SizeAxis
from ketscale.grid import Run, Study
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# If the slowest point takes this many times as long as the fastest, the time axis is logarithmic, without fits.
WIDE = 10.0
# A straight line is drawn if it is within this share of every median.
STRAIGHT = 0.1


class Sweep(Speed):
    """The step time against one axis, with one line for all points that differ in nothing else."""

    def __init__(self, name: str, varies: str, axis: str, caption: str) -> None:
        """name: of the kind and its figure. varies: the column on the axis. axis: its title."""
        self.name, self.varies, self.axis = name, varies, axis
        self.figure = Figure(name, f"Time per step against {axis}", caption, (name,), self.draw)

    def value(self, config: Config, run: Run) -> int | None:
        """The run's value on the axis; None if its family has no such axis."""
        return sizes_of(config, run).get(self.varies)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require at least two values, and that every run has one."""
        values = {self.value(config, run): run for run in study.runs}
        if None in values:
            yield f"models of {values[None].workload} have no {self.varies}; give them a study of their own"
        elif len(values) < 2:
            yield f"a study of kind {self.name} compares values of {self.varies}, but has only one; give a list of them"

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """How many times as long a step takes at the largest value as at the smallest, and by which law it grows."""
        points = inputs.points(study.name)
        if len(points):
            points = points.assign(line=self.lines(points, inputs), at=points[self.varies].astype(float))
        ends = [
            (str(line), group, inputs.faster(group.iloc[0], group.iloc[-1]))
            for line, group in (points.sort_values("at").groupby("line", sort=False) if len(points) else ())
            if group["at"].nunique() > 1
        ]
        if not ends:
            return Answer(f"Fewer than two values of {self.axis} have been timed yet.", verdicts.OPEN)
        count = verdicts.decided(found for _, _, found in ends)
        several = len(ends) > 1
        clauses = [
            self._clause(f"{line}: " if several else "", group, verdicts.together(found, count))
            for line, group, found in ends
        ]
        tied = ("batch",) if _tied(points, inputs) else ()
        but = (self.varies, *tied, *(("layout", "simulator") if several else ("layout",)))
        text = sentence(f"for {subject(points, inputs.config, but)}", [clause.text for clause in clauses])
        lead = max(clauses, key=lambda clause: clause.effect or 0)
        return replace(lead, text=text + verdicts.about_together(count))

    def _clause(self, line: str, group: pd.DataFrame, growth: Estimate) -> Answer:
        """The clause about one line of points, in the order of their values."""
        first, last = group.iloc[0], group.iloc[-1]
        share = growth.times(first["at"] / last["at"])
        verdict = _proportion(share, bool({first["flag"], last["flag"]} & {*SHARED_RATIOS, TIMED_OUT}))
        law = _law(group[group["flag"].isna()], self.axis)
        ends = f"{first['at']:.0f} to {last['at']:.0f}"
        ends = f"{self.axis} {ends}" if self.varies == "batch" else f"{ends} {self.axis}"
        text = (
            f"{line}from {ends} a step takes {digits(growth.value)} times as long ({duration(first['step_s'])} to "
            f"{duration(last['step_s'])}; {interval(growth)}), {verdict}{self.saved(share)}{law}"
        )
        return Answer.by(text, verdict, f"step time, {ends}", growth)

    def saved(self, share: Estimate) -> str:
        """What the growth relative to that of the axis says besides, in words."""
        return ""

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Time per step, with a straight line if one fits; one panel per study."""
        import matplotlib.pyplot as plt
        import pandas as pd

        studies = inputs.of(self.name)
        if not studies:
            return style.empty(inputs, inputs.asked(self.name))
        figure, grid = plt.subplots(
            len(studies), figsize=(9.5, 3.3 * len(studies)), squeeze=False, layout="constrained"
        )
        drawn = []
        for axes, (name, points) in zip(grid[:, 0], studies, strict=True):
            points = points.assign(line=self.lines(points, inputs), value=points[self.varies])
            fitted = _with_fits(with_regimes(points, inputs.laws))
            _curves(axes, fitted, "step_s", inputs)
            _circuits(axes, fitted)
            values = sorted(int(value) for value in points["value"].unique())
            axes.set(title=name, xlabel=self.axis, xticks=values, ylabel="time per step")
            if points["step_s"].max() < WIDE * points["step_s"].min():
                _draw_fits(axes, fitted, self.axis)
                axes.set_xlim(0, None)
                axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
                axes.yaxis.set_major_formatter(style.seconds_or_zero)
            else:
                style.log_seconds(axes.yaxis)
            style.legend(axes)
            drawn.append(fitted)
        note = (
            "Median over seeds; small dots: seeds; dashed: least-squares line through the medians, shown if it is "
            f"within {STRAIGHT:.0%} of each"
        )
        if any(points["circuit_s"].notna().any() for points in drawn):
            note += ". Dotted: the circuits alone, forward and backward, in a few sampled steps"
        style.footnote(figure, pd.concat(drawn), inputs, [name for name, _ in studies], note)
        return figure, pd.concat(drawn)

    def lines(self, points: pd.DataFrame, inputs: Inputs) -> pd.Series[str]:
        """The name of each point's line: simulator, layout, and whatever else the study varies."""
        varied = (self.varies, "simulator", "layout", *(["batch"] if _tied(points, inputs) else []))
        others = variants(points, inputs.config, but=varied)
        named = points["simulator"] + " on " + points["layout"]
        return named.where(others == "", named + ", " + others)


class Batch(Sweep):
    """The time per step and per epoch against the batch."""

    def value(self, config: Config, run: Run) -> int:
        """The global batch."""
        return run.batch

    def saved(self, share: Estimate) -> str:
        """What a sample costs at the largest batch."""
        return f", so a sample costs {digits(share.value)} times as much"

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Time per step and per epoch on logarithmic axes; one row of panels per study."""
        import matplotlib.pyplot as plt
        import pandas as pd

        studies = inputs.of(self.name)
        if not studies:
            return style.empty(inputs, inputs.asked(self.name))
        figure, grid = plt.subplots(
            len(studies), 2, figsize=(9.5, 3.3 * len(studies)), squeeze=False, layout="constrained"
        )
        drawn = []
        for panels, (name, points) in zip(grid, studies, strict=True):
            points = points.assign(line=self.lines(points, inputs), value=points["batch"])
            points = with_regimes(points, inputs.laws)
            for axes, column, of in zip(panels, ("step_s", "epoch_s"), ("step", "epoch"), strict=True):
                _curves(axes, points, column, inputs if column == "step_s" else None)
                axes.set(
                    title=f"{name}: {of}",
                    xlabel=f"batch ({_samples(inputs, points)}, log scale)",
                    ylabel=f"time per {of} (log scale)",
                )
                style.log_values(axes.xaxis, points["batch"].tolist())
                style.log_seconds(axes.yaxis)
            style.legend(panels[1])
            drawn.append(points)
        note = (
            "Median over seeds; small dots: seeds. The time per epoch is the median of whole epochs; where none was "
            "timed, an estimate: the mean step times the steps per epoch"
        )
        style.footnote(figure, pd.concat(drawn), inputs, [name for name, _ in studies], note)
        return figure, pd.concat(drawn)


def _tied(points: pd.DataFrame, inputs: Inputs) -> bool:
    """Whether a larger batch needs a larger model, so that the two grow together."""
    return any(inputs.config.family(name).work for name in points["workload"].unique())


def _proportion(share: Estimate, busy: bool) -> str:
    """The verdict on the growth of a time over that of the axis."""
    if busy:
        return verdicts.DISTURBED
    if share.low is None or share.high is None:
        return verdicts.FEW
    if share.high < 1 / verdicts.WORTH:
        return "less than in proportion"
    return "more than in proportion" if share.low > verdicts.WORTH else "about in proportion"


def _law(sound: pd.DataFrame, axis: str) -> str:
    """The law that the medians follow, in words: a straight line that fits, else a power or an exponential."""
    x, y = ([float(value) for value in sound[name]] for name in ("at", "step_s"))
    line, growth = laws.fit_line(x, y), laws.fit_growth(x, y)
    if line is None or growth is None:
        return ""
    if line.intercept >= 0 and line.slope >= 0 and _straight(line, sound["at"], sound["step_s"]):
        return f", as {duration(line.intercept)} + {duration(line.slope)} x {axis}"
    if growth.exponential:
        return f", about {growth.rate:.3g} times as long for each one more (R² {growth.r2:.2f})"
    return f", about as the power {growth.rate:.2g} of {axis} (R² {growth.r2:.2f})"


def _straight(line: laws.Line, x: pd.Series[float], y: pd.Series[float]) -> bool:
    """Whether a line is within `STRAIGHT` of each value."""
    return bool(((y - line.intercept - line.slope * x).abs() <= STRAIGHT * y).all())


def _samples(inputs: Inputs, points: pd.DataFrame) -> str:
    """What the batch counts."""
    words = {inputs.config.family(str(workload)).samples for workload in points["workload"]}
    return words.pop() if len(words) == 1 else "samples"


def _curves(axes: Axes, points: pd.DataFrame, column: str, inputs: Inputs | None) -> None:
    """Draw each line through its medians, and if `inputs` are given, seeds as small dots."""
    for number, (name, group) in enumerate(points.groupby("line", sort=True)):
        look, marker, ordered = style.line(number), style.marker(number), group.sort_values("value")
        axes.plot(ordered["value"], ordered[column], lw=1.5, alpha=0.7, **look)
        for _, point in ordered.iterrows():
            hollow = point["flag"] in HOLLOW
            style.dot(
                axes, point["value"], point[column], look["color"], hollow, marker=marker, ms=7, zorder=3
            )
        if inputs is not None:
            for _, seed in inputs.seeds(ordered).iterrows():
                style.dot(
                    axes, seed["value"], seed["step_s"], look["color"], seed["hollow"], ms=3.5, alpha=0.6
                )
        label = "\n".join(filter(None, (str(name), group["regimes"].iloc[0])))
        axes.plot([], [], marker=marker, label=label, **look)


def _circuits(axes: Axes, points: pd.DataFrame) -> None:
    """Draw the time of the circuits alone below each line."""
    for number, (_, group) in enumerate(points.groupby("line", sort=True)):
        ordered = group.sort_values("value")
        axes.plot(ordered["value"], ordered["circuit_s"], ls=":", lw=1.5, color=style.line(number)["color"])


def _with_fits(points: pd.DataFrame) -> pd.DataFrame:
    """The points with the intercept_s, slope_s and r2 of a straight fit to their line's unflagged points."""
    import pandas as pd

    fitted = []
    for _, group in points.groupby("line", sort=True):
        sound = group[group["flag"].isna()]
        x, y = (
            [float(value) for value in sound["value"]],
            [float(value) for value in sound["step_s"]],
        )
        line = laws.fit_line(x, y)
        found = (line.intercept, line.slope, line.r2) if line else (float("nan"),) * 3
        fitted.append(group.assign(**dict(zip(("intercept_s", "slope_s", "r2"), found, strict=True))))
    return pd.concat(fitted)


def _draw_fits(axes: Axes, points: pd.DataFrame, unit: str) -> None:
    for number, (_, group) in enumerate(points.groupby("line", sort=True)):
        first = group.iloc[0]
        line = laws.Line(first["intercept_s"], first["slope_s"], first["r2"])
        if not _straight(line, group["value"], group["step_s"]):
            continue
        ends = [0.0, float(group["value"].max())]
        start, slope = (float(first[name]) for name in ("intercept_s", "slope_s"))
        words = f"{'-' if start < 0 else ''}{duration(abs(start))} {'-' if slope < 0 else '+'} {duration(abs(slope))}"
        label = f"{words} x {unit} (R² {first['r2']:.3f})"
        heights = [start + slope * end for end in ends]
        axes.plot(ends, heights, ls=(0, (4, 3)), color=style.colour(number), lw=1, label=label)


BATCH = Batch(
    "batch",
    "batch",
    "batch",
    "Time per step and per epoch against the batch. Larger batches save time only while the step time grows more "
    "slowly than the batch. Whether they cost accuracy is another question.",
)


def of_size(axis: SizeAxis) -> Sweep:
    """The sweep of one size axis."""
    return Sweep(
        axis.sweep or axis.name,
        axis.name,
        axis.title,
        f"Time per step against {axis.title}. If a straight line fits, its intercept is the part of the time that "
        f"does not depend on {axis.title}.",
    )
