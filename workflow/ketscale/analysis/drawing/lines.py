"""Lines with intervals: the time of a step against a size or the batch, and the error of simulators against their cost."""

from __future__ import annotations

import textwrap

from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.points import HOLLOW, variants
from ketscale.analysis.wording import where
from ketscale.words import duration

# If the slowest point takes this many times as long as the fastest, the time axis is logarithmic.
WIDE = 10.0
# States that are further than this from physical ones are marked.
PHYSICAL = 1e-9
# An error of zero has no place on a logarithmic axis; this is the rounding of a double between 1/2 and 1.
LEAST = 2.0**-53


def draw(axis: str, title: str, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The time of a step against an axis, of 1,000 samples against the batch: a line for whatever else the study varies."""
    points = inputs.speed[inputs.speed["step_s"].notna()]
    if points.empty:
        return None
    # A larger batch may need a larger model; then the two grow together.
    tied = any(inputs.config.family(name).work for name in points["workload"].unique())
    line = variants(points, inputs.config, (axis, "layout", "workload", *(["batch"] if tied else [])))
    if points["layout"].nunique() > 1:
        line = line.where(line == "", line + " on ") + points["layout"].map(where)
    each = 1000 / points["batch"] if axis == "batch" else 1.0
    times = {f"time{end}": points[f"step{end}_s"] * each for end in ("", "_low", "_high")}
    points = points.assign(
        line=line, at=points[axis].astype(float), hollow=points["flag"].isin(HOLLOW), **times
    )
    if points.groupby("line")["at"].nunique().max() < 2:
        return None

    def finish(axes: Axes, part: pd.DataFrame) -> None:
        if axis == "batch":
            axes.set(
                xlabel="batch (log scale)",
                ylabel=f"time of 1,000 {inputs.config.samples(part['workload'].iloc[0])}",
            )
            style.log_values(axes.xaxis, part["batch"].tolist())
            style.log_seconds(axes.yaxis)
            return
        axes.set(xlabel=title, xticks=sorted(set(part["at"])), ylabel="time per step")
        axes.xaxis.set_major_formatter("{x:g}")
        if part["time"].max() >= WIDE * part["time"].min():
            style.log_seconds(axes.yaxis)
            return
        axes.set(xlim=(0, None), ylim=(0, 1.05 * axes.get_ylim()[1]))
        axes.yaxis.set_major_formatter(lambda value, _: duration(value) if value else "0")

    return plots.lines(points, inputs, "at", "time", ("time_low", "time_high"), finish, "Typical time")


def convergence(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Error against step and against time, both logarithmic; two panels for each data set."""
    points = inputs.speed[inputs.speed["error"].notna() & inputs.speed["step_s"].notna()].reset_index(
        drop=True
    )
    if len(points) < 2:
        return None
    others = variants(points, inputs.config, ("simulator", "workload"))
    points = points.assign(
        line=points["method"].where(others == "", points["method"] + ", " + others),
        # Nothing that is as exact is faster.
        on_frontier=points["reference"].isna() & ~points["flag"].isin(HOLLOW),
        hollow=points["flag"].isin(HOLLOW),
        # Zero has no logarithm.
        height=points["error"].clip(lower=LEAST),
        shape=points["negativity"].gt(PHYSICAL).map({True: "X", False: "o"}),
    ).sort_values(["line", "dt"])
    metric = inputs.config.family(points["workload"].iloc[0]).about("error")
    label = textwrap.fill(metric.title if metric else "error", 26)
    panels = list(plots.parts(points, inputs, "line"))
    figure, grid = style.panels(2 * len(panels))
    ends = []
    for number, axes in enumerate(grid):
        title, part = panels[number // 2]
        column, words = (("dt", "length of a step"), ("step_s", "time of a training step"))[number % 2]
        ends.append(plots.curves(axes, part, column, "height"))
        axes.set(title=title, xlabel=f"{words} (log scale)", ylabel=label)
        style.log_numbers(axes.yaxis)
        (style.log_numbers if column == "dt" else style.log_seconds)(axes.xaxis)
    plots.alike(grid, [part for _, part in panels for _ in range(2)])
    for (_, part), axes in zip(panels, grid[1::2], strict=True):
        _frontier(axes, part[part["on_frontier"]])
    for axes, named in zip(grid, ends, strict=True):
        style.name_lines(axes, named)
    note = f"Errors below {LEAST:.0e} are drawn there; crosses: states that are not physical"
    style.footnote(figure, points, inputs, note)
    return figure, points


def _frontier(axes: Axes, points: pd.DataFrame) -> None:
    """A step line through the frontier, up from the fastest and right from the most exact."""
    (_, most_s), (_, highest) = axes.get_xlim(), axes.get_ylim()
    for _, part in points.groupby(["model", "size", "batch"]):
        ordered = part.sort_values(["step_s", "height"])
        x = [ordered["step_s"].iloc[0], *ordered["step_s"], most_s]
        y = [highest, *ordered["height"], ordered["height"].iloc[-1]]
        axes.step(x, y, where="post", color=style.FRAME, lw=1, zorder=1)
    axes.set(xlim=(None, most_s), ylim=(None, highest))
