"""Figures of studies of speed: a row for each point, lines against a size or the batch, error against cost, and scaling."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping

from ketscale.analysis import laws
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.style import Inputs
from ketscale.analysis.heavy import Axes, Drawing, np, pd
from ketscale.analysis.points import HOLLOW, HOLLOW_RATIOS, serial, size_axes, variants
from ketscale.analysis.wording import data, where
from ketscale.config import Config
from ketscale.grid import BACKENDS, layout
from ketscale.words import duration

# An error of zero has no place on a logarithmic axis; this is the rounding of a double between 1/2 and 1.
LEAST = 2.0**-53
# Groups of points that the figure of workers has, with two panels each.
MOST_GROUPS = 6
NOTE = f"Logarithmic axes. Grey: ideal; percent: parallel efficiency at the last point. {style.RATIOS}"
CORE, GPU = "one core", "one GPU"
# They have the same colours in all figures.
USUAL = ("threads", "MPI ranks", "DDP ranks (Gloo)", "DDP ranks (NCCL)", GPU)
# How far the points of two ways are apart, over their workers, so that no interval hides another one.
DODGE = 0.03


def steps(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Step times with their intervals, in the order of the table; of a point that timed out before it had a time, the words."""
    points = inputs.speed[inputs.speed["step_s"].notna() | (inputs.speed["timed_out"] > 0)]
    if points["step_s"].notna().sum() < 2:
        return None
    effects = points.assign(
        name=points["point"],
        value=points["step_s"],
        low=points["step_low_s"],
        high=points["step_high_s"],
        words=[duration(time) if time > 0 else "timed out" for time in points["step_s"]],
        hollow=points["flag"].isin(HOLLOW),
        colour=style.PALETTE[0],
    )
    label, parts = "time per training step (log scale)", [*style.parts(effects, inputs, "workload")]
    return style.forest(parts, inputs, "Typical time of a step", label, duration)


def effects(label: str, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Effects with their intervals, in the order of the table; what is misconfigured is orange."""
    points = inputs.speed[inputs.speed["effect"].notna()]
    if len(points) < 2:
        return None
    effects = style.effects(points).assign(
        hollow=points["flag"].isin(HOLLOW_RATIOS),
        colour=points["mistake"].notna().map({True: style.PALETTE[3], False: style.PALETTE[0]}),
    )
    parts = [*style.parts(effects, inputs, "workload")]
    return style.forest(parts, inputs, style.RATIOS, f"{label} (log scale)", style.FACTOR, none=1)


def sweep(axis: str, title: str, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
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

    by_batch = axis == "batch"
    panels = list(style.parts(points, inputs, "line"))
    figure, grid = style.panels(len(panels))
    for axes, (heading, part) in zip(grid, panels, strict=True):
        style.title(axes, heading)
        style.curves(axes, part, "at", "time", ("time_low", "time_high"))
        of = "1,000 samples" if by_batch else "a step"
        axes.set(xlabel=f"{title} (log scale)" if by_batch else title, ylabel=f"time of {of} (log scale)")
        style.values(axes, part["at"], "log" if by_batch else "linear")
        style.logarithmic(axes.yaxis, duration)
    style.footnote(figure, points, inputs, "Typical time")
    return figure, points


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
    panels = [panel for panel in style.parts(points, inputs, "line") for _ in range(2)]
    figure, grid = style.panels(len(panels))
    for number, (axes, (title, part)) in enumerate(zip(grid, panels, strict=True)):
        column, words = (("dt", "length of a step"), ("step_s", "time of a training step"))[number % 2]
        style.curves(axes, part, column, "height")
        if column == "step_s":
            frontier = part[part["on_frontier"]]
            axes.scatter(frontier[column], frontier["height"], 80, facecolors="none", edgecolors=style.FRAME)
        style.title(axes, title)
        axes.set(xlabel=f"{words} (log scale)", ylabel=label)
        style.logarithmic(axes.yaxis)
        style.logarithmic(axes.xaxis, *([duration] if column == "step_s" else []))
    style.footnote(figure, points, inputs, f"Rings: the frontier. Errors below {LEAST:.0e} are drawn there")
    return figure, points


def workers(speedup: str, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Two panels for each group of points of a study that differ in their layout; `speedup` is the label of the second."""
    points = inputs.speed[inputs.speed["step_s"].notna()]
    if points["effect"].notna().sum() == 0:
        return None
    points = points.assign(
        line=points["layout"].map(way),
        x=points["workers"].astype(float),
        panel=variants(points, inputs.config, ("layout", "workload", *_growth(points, inputs.config))),
    )
    colours = style.colours([*USUAL, *sorted({*points["line"]} - {*USUAL, CORE})]) | {CORE: style.FRAME}
    groups = list(points.groupby(["workload", "panel"], sort=False))
    figure, grid = style.panels(2 * len(groups[:MOST_GROUPS]), height=2.4, least=3.0)
    for ((workload, panel), part), times, ratios in zip(groups, grid[::2], grid[1::2], strict=False):
        style.title(times, ", ".join(filter(None, (data(str(workload), inputs.config), str(panel)))))
        series = _series(part)
        _times(times, series, part, colours)
        _ratios(ratios, series, part, inputs.fits, colours)
        ratios.set_ylabel(speedup)
    dashed = "Dashed: the fitted law. " if len(inputs.fits) else ""
    note = f"{dashed}{NOTE}{style.omission(len(groups), MOST_GROUPS, 'group')}"
    style.footnote(figure, points, inputs, note)
    return figure, points


def _growth(points: pd.DataFrame, config: Config) -> list[str]:
    """What grows with the workers in weak scaling: the batch, and in families whose batch is not free some sizes."""
    if points["kind"].iloc[0] != "weak":
        return []
    worked = points[points["family"].isin([name for name, family in config.families.items() if family.work])]
    sizes = [
        name for name in size_axes(config)
        if worked[name].min() < worked[name].max() and (worked.groupby("workers")[name].nunique() == 1).all()
    ]  # fmt: skip
    return ["batch", *sizes]


def way(text: str) -> str:
    """What a layout has several of, such as 'threads', 'MPI ranks' and 'DDP ranks (NCCL), 2 threads, 2 nodes'."""
    parts = layout(text)
    backend = BACKENDS[parts["backend"]]
    if not backend.several_ranks:
        return GPU if backend.device == "gpu" else CORE if parts["threads"] == 1 else "threads"
    name = {"ddp": "DDP ranks (NCCL)", "ddp-cpu": "DDP ranks (Gloo)", "mpi": "MPI ranks"}[backend.name]
    more = [f"{parts[each]} {each}" for each in ("threads", "nodes") if parts[each] > 1]
    return ", ".join([name, *more])


def _series(points: pd.DataFrame) -> pd.DataFrame:
    """The points of the ways to work side by side, next to each other. One that lacks one worker begins with the core or GPU
    that its speedup is over.
    """
    ways = [(name, own) for name, own in points.groupby("line", sort=True) if name not in (CORE, GPU)]
    frames = [points.head(0)]
    for number, (name, own) in enumerate(ways):
        if own["workers"].min() > 1:
            serial_rows = points[points["layout"] == serial(layout(own["layout"].iloc[0])["backend"])]
            own = pd.concat([serial_rows.assign(line=name, effect=1.0), own])
        frames.append(own.assign(x=own["workers"] * (1 + DODGE * (number - (len(ways) - 1) / 2))))
    return pd.concat(frames)


def _times(axes: Axes, series: pd.DataFrame, points: pd.DataFrame, colours: Mapping[str, str]) -> None:
    """The time of a step by workers; that of one GPU, or of a core with which no way begins, is a line with its interval."""
    shown_rows = series.assign(hollow=series["flag"].isin(HOLLOW))
    style.curves(axes, shown_rows, "x", "step_s", ("step_low_s", "step_high_s"), colours)
    lone = points["line"].eq(GPU) | (points["line"].eq(CORE) & ~points["layout"].isin(series["layout"]))
    for _, one in points[lone].iterrows():
        colour = colours[one["line"]]
        axes.axhline(one["step_s"], color=colour, lw=1.3)
        if one["step_low_s"] < one["step_high_s"]:
            axes.axhspan(one["step_low_s"], one["step_high_s"], color=colour, alpha=0.25, lw=0)
        axes.annotate(one["line"], (0.99, one["step_s"]), xycoords=("axes fraction", "data"), color=colour,
                      ha="right", va="bottom", fontsize=7)  # fmt: skip
    _workers(axes, points)
    style.logarithmic(axes.yaxis, duration)
    axes.set_ylabel("time of a step")


def _ratios(
    axes: Axes, series: pd.DataFrame, points: pd.DataFrame, fitted: pd.DataFrame, colours: Mapping[str, str]
) -> None:
    """The speedup by workers with the ideal and the fitted laws; the legend has the efficiency at the last point of each way."""
    ideal = [1, points["workers"].max()]
    axes.plot(ideal, ideal, color=style.SOFT, lw=0.8, zorder=1)
    shown_rows = series.assign(hollow=series["flag"].isin(HOLLOW_RATIOS))
    style.curves(axes, shown_rows, "x", "effect", ("low", "high"), colours)
    legend = {}
    several = series[series["effect"].notna() & (series["workers"] > 1)]
    for name, own in several.sort_values("workers").groupby("line", sort=True):
        if law := laws.of_line(fitted, own):
            exponent, values = law
            at = np.geomspace(1, own["workers"].max(), 60)
            scale = statistics.geometric_mean(own["effect"] / exponent.speedup(own["workers"], *values))
            axes.plot(at, scale * exponent.speedup(at, *values), color=colours[str(name)], ls="--", lw=1)
        last = own.iloc[-1]
        legend[f"{name}: {100 * last['effect'] / last['workers']:.0f}\u00a0%"] = colours[str(name)]
    _workers(axes, points)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    style.legend(axes, legend)


def _workers(axes: Axes, points: pd.DataFrame) -> None:
    style.values(axes, {1, *points["workers"]}, "log")
    axes.set(xlabel="workers (cores, or GPUs)", xlim=(2**-0.25, points["workers"].max() * 2**0.25))
