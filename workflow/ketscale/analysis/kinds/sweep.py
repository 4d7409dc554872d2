"""Sweeps of one axis: the batch, or a size axis of the families."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ketscale.analysis import laws
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds.kind import Figure
from ketscale.analysis.kinds.speed import Speed
from ketscale.analysis.laws.drawing import with_regimes
from ketscale.analysis.points import sizes_of, variants
from ketscale.config import Config, SizeAxis
from ketscale.grid import Run, Study
from ketscale.measure.duration import duration

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
        style.footnote(figure, pd.concat(drawn), inputs, [name for name, _ in studies], note)
        return figure, pd.concat(drawn)

    def lines(self, points: pd.DataFrame, inputs: Inputs) -> pd.Series[str]:
        """The name of each point's line: simulator, layout, and whatever else the study varies."""
        # Where a larger batch needs a larger model, the two grow together.
        tied = any(inputs.config.family(name).work for name in points["workload"].unique())
        varied = (self.varies, "simulator", "layout", *(["batch"] if tied else []))
        others = variants(points, inputs.config, but=varied)
        named = points["simulator"] + " on " + points["layout"]
        return named.where(others == "", named + ", " + others)


class Batch(Sweep):
    """The time per step and per epoch against the batch."""

    def value(self, config: Config, run: Run) -> int:
        """The global batch."""
        return run.batch

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
        note = "Median over seeds; small dots: seeds. The time per epoch is the median step times the steps per epoch"
        style.footnote(figure, pd.concat(drawn), inputs, [name for name, _ in studies], note)
        return figure, pd.concat(drawn)


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
            hollow = point["flag"] == "busy"
            style.dot(
                axes, point["value"], point[column], look["color"], hollow, marker=marker, ms=7, zorder=3
            )
        if inputs is not None:
            for _, seed in inputs.seeds(ordered).iterrows():
                style.dot(
                    axes, seed["value"], seed["step_s"], look["color"], not seed["quiet"], ms=3.5, alpha=0.6
                )
        label = "\n".join(filter(None, (str(name), group["regimes"].iloc[0])))
        axes.plot([], [], marker=marker, label=label, **look)


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
        at = first["intercept_s"] + first["slope_s"] * group["value"]
        if not ((group["step_s"] - at).abs() <= STRAIGHT * group["step_s"]).all():
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
