"""Lines with intervals: the time of a step against a size or the batch, and the error of simulators against their cost."""

from __future__ import annotations

import textwrap

from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.points import HOLLOW, variants
from ketscale.analysis.wording import where

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
        by_batch = axis == "batch"
        samples = inputs.config.samples(part["workload"].iloc[0])
        of = f"1,000 {samples}" if by_batch else "a step"
        axes.set(xlabel=f"{title} (log scale)" if by_batch else title, ylabel=f"time of {of} (log scale)")
        style.values(axes, part["at"], "log" if by_batch else "linear")
        style.log_seconds(axes.yaxis)

    return plots.lines(points, inputs, "at", "time", ("time_low", "time_high"), finish, "Typical time")


def convergence(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Error against step and against time, both logarithmic; two panels for each data set."""
    points = inputs.speed[inputs.speed["error"].notna() & inputs.speed["step_s"].notna()]
    if len(points) < 2:
        return None
    others = variants(points, inputs.config, ("simulator", "workload"))
    points = points.assign(
        line=points["method"].where(others == "", points["method"] + ", " + others),
        hollow=points["flag"].isin(HOLLOW),
        # Nothing that is as exact is faster.
        on_frontier=points["reference"].isna() & ~points["flag"].isin(HOLLOW),
        # Zero has no logarithm.
        height=points["error"].clip(lower=LEAST),
    ).sort_values(["line", "dt"], ignore_index=True)
    metric = inputs.config.family(points["workload"].iloc[0]).about("error")
    label = textwrap.fill(metric.title if metric else "error", 26)
    panels = [panel for panel in plots.parts(points, inputs, "line") for _ in range(2)]
    figure, grid = style.panels(len(panels))
    for number, (axes, (title, part)) in enumerate(zip(grid, panels, strict=True)):
        column, words = (("dt", "length of a step"), ("step_s", "time of a training step"))[number % 2]
        plots.curves(axes, part, column, "height")
        frontier, unphysical = part[part["on_frontier"]], part[part["negativity"] > PHYSICAL]
        axes.scatter(unphysical[column], unphysical["height"], 40, marker="x", color=style.FRAME, zorder=4)
        if column == "step_s":
            axes.scatter(frontier[column], frontier["height"], 80, facecolors="none", edgecolors=style.FRAME)
        style.title(axes, title)
        axes.set(xlabel=f"{words} (log scale)", ylabel=label)
        style.log_numbers(axes.yaxis)
        (style.log_numbers if column == "dt" else style.log_seconds)(axes.xaxis)
    note = f"Rings: the frontier. Errors below {LEAST:.0e} are drawn there; crosses: states that are not physical"
    style.footnote(figure, points, inputs, note)
    return figure, points
