"""The figure of scaling: a step's time and the speedup against the number of workers, a series for each way to work side by side."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Sequence

from ketscale.analysis import laws
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, np, pd
from ketscale.analysis.points import HOLLOW, HOLLOW_RATIOS, size_axes, variants
from ketscale.analysis.wording import data, device
from ketscale.config import Config
from ketscale.grid import BACKENDS, layout

RATIO = "effect"
# Groups of points that one figure has, with two panels each.
MOST = 6
# From this number of workers on, speedups are on a logarithmic axis.
DOUBLING = 8
NOTE = f"Grey: ideal; percent: parallel efficiency at the last point. {plots.RATIOS}"
ONE = "one core"
# How far the points of two ways are apart, over their workers.
DODGE = 0.03


def draw(speedup: str, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Two panels for each group of points of a study that differ in their layout; None without a ratio.

    speedup: the label of its axis.
    """
    points = inputs.speed[inputs.speed["step_s"].notna()]
    if points[RATIO].notna().sum() == 0:
        return None
    points = points.assign(
        way=points["layout"].map(way),
        x=points["workers"],
        panel=variants(points, inputs.config, ("layout", "workload", *_grown(points, inputs.config))),
        gpu=points["layout"].map(device) == "GPU",
    )
    groups = list(points.groupby(["workload", "panel"], sort=False))
    figure, grid = style.panels(2 * len(groups[:MOST]), height=2.5, least=3.0)
    for number, ((workload, panel), part) in enumerate(groups[:MOST]):
        times, ratios = grid[2 * number : 2 * number + 2]
        title = ", ".join(filter(None, (data(str(workload), inputs.config), str(panel))))
        times.set_title(textwrap.fill(title, int(15 * style.width() / (2 if style.width() > 5 else 1))))
        _times(times, part)
        _ratios(ratios, part, inputs.fits, speedup)
    left_out = f"{len(groups) - MOST} more groups are in speed.csv. " if len(groups) > MOST else ""
    dashed = "Dashed: the fitted law. " if len(inputs.fits) else ""
    style.footnote(figure, points, inputs, f"{left_out}{dashed}{NOTE}")
    return figure, points


def _grown(points: pd.DataFrame, config: Config) -> list[str]:
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
    found = layout(text)
    backend = BACKENDS[found["backend"]]
    if not backend.several_ranks:
        return "one GPU" if backend.device == "gpu" else ONE if found["threads"] == 1 else "threads"
    name = {"ddp": "DDP ranks (NCCL)", "ddp-cpu": "DDP ranks (Gloo)", "mpi": "MPI ranks"}[backend.name]
    more = [f"{found[each]} {each}" for each in ("threads", "nodes") if found[each] > 1]
    return ", ".join([name, *more])


def _ways(part: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Each way with its colour and its points, by their workers. Each of the usual ways has a colour of its own in all panels."""
    order = ["threads", "MPI ranks", "DDP ranks (Gloo)", "DDP ranks (NCCL)"]
    names = sorted(
        set(part["way"]) - {ONE, "one GPU"}, key=lambda name: (order.index(name.split(",")[0]), name)
    )
    extra = iter(range(len(order) + 1, len(style.PALETTE)))
    for name in names:
        number = order.index(name) if name in order else next(extra, 7)
        own = part[part["way"] == name].sort_values("workers")
        # Side by side, so that no interval hides another one.
        yield (
            name,
            style.colour(number),
            own.assign(x=own["workers"] * (1 + DODGE * (names.index(name) - (len(names) - 1) / 2))),
        )


def _times(axes: Axes, part: pd.DataFrame) -> None:
    """The time of a step by workers; that of one GPU is a horizontal line with its interval."""
    cores = part[~part["gpu"]]
    one = part[part["way"] == ONE]
    _series(axes, one, style.FRAME, "step_s", ("step_low_s", "step_high_s"), HOLLOW)
    for _, colour, own in _ways(part):
        first = one if own["workers"].min() > 1 and not own["gpu"].any() else one.head(0)
        _line(axes, pd.concat([first, own]), colour, "step_s")
        _series(axes, own, colour, "step_s", ("step_low_s", "step_high_s"), HOLLOW)
    for _, gpu in part[part["way"] == "one GPU"].iterrows():
        colour = style.colour(4)
        axes.axhline(gpu["step_s"], color=colour, lw=1.3)
        if gpu["step_low_s"] < gpu["step_high_s"]:
            axes.axhspan(gpu["step_low_s"], gpu["step_high_s"], color=colour, alpha=0.25, lw=0)
        axes.annotate("one GPU", (0.99, gpu["step_s"]), (0, 2), xycoords=("axes fraction", "data"), color=colour,
                      textcoords="offset points", ha="right", fontsize=7)  # fmt: skip
    style.log_seconds(axes.yaxis)
    _workers(axes, cores if len(cores) else part)
    axes.set(ylabel="time of a step (log scale)")


def _ratios(axes: Axes, part: pd.DataFrame, fitted: pd.DataFrame, label: str) -> None:
    """The speedup by workers with the ideal and the fitted laws; the efficiency stands at the last point of each way."""
    _workers(axes, part)
    most = int(part["workers"].max())
    ideal = np.geomspace(1, most, 60)
    axes.plot(ideal, ideal, color=style.SOFT, lw=0.8, zorder=1)
    axes.plot(1, 1, "o", color=style.FRAME, ms=4, zorder=3)
    ends = []
    for name, colour, own in _ways(part[part[RATIO].notna() & (part["workers"] > 1)]):
        start = (
            pd.DataFrame([{"workers": 1, "x": 1, RATIO: 1.0}]) if own["workers"].min() > 1 else own.head(0)
        )
        _line(axes, pd.concat([start, own]), colour, RATIO)
        _series(axes, own, colour, RATIO, ("low", "high"), HOLLOW_RATIOS)
        if law := laws.of_line(fitted, own):
            found, values = law
            at = np.geomspace(1, own["workers"].max(), 60)
            scale = statistics.geometric_mean(own[RATIO] / found.speedup(own["workers"], *values))
            axes.plot(at, scale * found.speedup(at, *values), color=colour, ls=(0, (4, 2)), lw=1)
        last = own.iloc[-1]
        ends.append((float(last[RATIO]), f"{name}: {100 * last[RATIO] / last['workers']:.0f} %", colour))
    if most >= DOUBLING:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    else:
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.05 * most))
    axes.set(ylabel=label)
    style.name_lines(axes, ends)


def _series(
    axes: Axes, points: pd.DataFrame, colour: str, y: str, ends: tuple[str, str], hollow: Sequence[str]
) -> None:
    """Dots with intervals; hollow where the machine was busy."""
    axes.vlines(points["x"], points[ends[0]], points[ends[1]], color=colour, lw=1.5)
    for _, point in points.iterrows():
        style.dot(axes, point["x"], point[y], colour, point["flag"] in hollow, ms=5, zorder=3)


def _line(axes: Axes, points: pd.DataFrame, colour: str, y: str) -> None:
    """A line through three points or more: two do not show a course."""
    known = points[points[y].notna()].sort_values("workers")
    if known["workers"].nunique() > 2:
        axes.plot(known["x"], known[y], color=colour, lw=1.3, alpha=0.7)


def _workers(axes: Axes, part: pd.DataFrame) -> None:
    counts = sorted({1, *map(int, part["workers"])})
    if counts[-1] >= DOUBLING:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.set_xlim(2**-0.25, counts[-1] * 2**0.25)
    else:
        axes.set_xlim(0.7, counts[-1] + 0.3)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set(xlabel="workers (cores, or GPUs)")
