"""Step times side by side (simulators, cached against inline) and strong and weak scaling."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables
from ketscale.analysis.scaling import BUSY_RATIOS
from ketscale.grid import place

# Of what a study varies besides places; diamonds are the best serial runs.
MARKERS = ("o", "s", "^", "v", "P", "X")


def simulators(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Time per step under each simulator on a logarithmic axis: every seed, and the median."""
    return _side_by_side(tables, "simulator", "time per training step")


def features(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Time per step with cached and with inline features."""
    return _side_by_side(tables, "features", "time per training step")


def _side_by_side(tables: Tables, kind: str, label: str) -> tuple[Figure, pd.DataFrame]:
    studies = tables.of(kind)
    if not studies:
        return style.empty(tables, tables.asked(kind))
    rows = [len(points) for _, points in studies]
    figure, grid = plt.subplots(
        len(studies),
        figsize=(9.5, 1.1 + 0.55 * sum(rows)),
        squeeze=False,
        height_ratios=rows,
        layout="constrained",
    )
    for axes, (name, points) in zip(grid[:, 0], studies, strict=True):
        _rows(axes, points.sort_values("step_s"), tables)
        first = points.iloc[0]
        axes.set_title(
            f"{name}: {first['model']}, {first['qubits']} qubits, {first['layers']} layers, "
            f"batch {first['batch']}"
        )
        axes.set_xlabel(f"{label} (log scale)")
    drawn = pd.concat([points for _, points in studies])
    style.caption(
        figure,
        drawn,
        tables,
        [name for name, _ in studies],
        "Dots: seeds; bar: median; x: against the fastest",
    )
    return figure, drawn


def _rows(axes: Axes, points: pd.DataFrame, tables: Tables) -> None:
    seeds = tables.seeds(points)
    fastest = points["step_s"].min()
    for height, (_, point) in enumerate(points.iterrows()):
        names = list(tables.config["simulators"])
        number = names.index(point["value"]) if point["value"] in names else height
        colour = PALETTE[number % len(PALETTE)]
        axes.plot(
            [point["step_s"]] * 2, [height - 0.28, height + 0.28], color=colour, lw=3, solid_capstyle="round"
        )
        own = seeds[seeds["value"] == point["value"]].sort_values("seed")
        for order, (_, seed) in enumerate(own.iterrows()):
            offset = 0.36 * ((order + 0.5) / len(own) - 0.5)
            style.dot(axes, seed["step_s"], height + offset, colour, not seed["quiet"], ms=5.5, alpha=0.85)
        paired = point["speedup_best_serial"]
        factor = 1 / paired if paired > 0 else point["step_s"] / fastest
        text = style.seconds(point["step_s"]) + (f"  ({_factor(factor)})" if factor > 1 else "  (fastest)")
        axes.annotate(
            text, (point["step_high_s"], height), (10, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set_yticks(range(len(points)), points["value"].tolist())
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.set_xlim(
        fastest / 1.6, points["step_high_s"].max() * (points["step_high_s"].max() / fastest) ** 0.25 * 2.5
    )
    style.log_seconds(axes.xaxis)
    axes.grid(False, axis="y")


def _factor(value: float) -> str:
    return f"{value:,.0f}x" if value >= 100 else f"{value:.3g}x"


def strong(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Speedup at a fixed global batch with the ideal line, beside efficiency and time per step."""
    return _scaling(tables, "strong", "speedup over one worker")


def weak(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Throughput at a fixed batch per worker with the ideal line, beside efficiency and time per step."""
    return _scaling(tables, "weak", "throughput over one worker")


def _scaling(tables: Tables, kind: str, label: str) -> tuple[Figure, pd.DataFrame]:
    studies = tables.of(kind)
    if not studies:
        return style.empty(tables, tables.asked(kind))
    figure, grid = plt.subplots(
        len(studies), 3, figsize=(11.5, 3.3 * len(studies)), squeeze=False, layout="constrained"
    )
    for line, (name, points) in zip(grid, studies, strict=True):
        workers = sorted(points["workers"].unique())
        line[0].plot(workers, workers, ls="--", color=style.FRAME, lw=1, label="ideal")
        line[1].axhline(1, ls="--", color=style.FRAME, lw=1)
        families = points["place"].map(_family)
        variants = style.variants(points)
        lines = sorted(set(zip(families, variants, strict=True)))
        for number, (family, variant) in enumerate(lines):
            chosen = points[(families == family) & (variants == variant)].sort_values("workers")
            shift = 0.05 * (number - (len(lines) - 1) / 2) * max(1, workers[-1] - workers[0])
            colour = PALETTE[sorted(set(families)).index(family)]
            marker = MARKERS[sorted(set(variants)).index(variant) % len(MARKERS)]
            words = f"{family}, {variant}" if variant else family
            _line(line, chosen, words, colour, marker, shift)
        for axes, title, unit in zip(
            line,
            (label, "parallel efficiency", "time per step"),
            ("x", "share of ideal", "time"),
            strict=True,
        ):
            axes.set(
                title=title,
                xlabel="workers (ranks x threads)",
                ylabel=unit,
                ylim=(0, 1.12 * axes.get_ylim()[1]),
            )
            axes.set_xticks(workers)
            axes.margins(x=0.2)
        handles, names = line[0].get_legend_handles_labels()
        line[2].legend(handles, names, loc="center left", bbox_to_anchor=(1.02, 0.5))
        line[2].set_title(f"time per step ({name})")
        line[2].yaxis.set_major_formatter(lambda value, _: style.seconds(value) if value else "0")
    drawn = pd.concat([points for _, points in studies])
    note = "Median and range over seeds, ratios paired by seed; diamonds: against the best serial run"
    note += " on the same cores"
    style.caption(figure, drawn, tables, [name for name, _ in studies], note)
    return figure, drawn


def _line(
    line: tuple[Axes, Axes, Axes], points: pd.DataFrame, label: str, colour: object, marker: str, shift: float
) -> None:
    """One family of places in the three panels; busy points are hollow, and ratios to busy ones."""
    x = points["workers"] + shift
    busy, ratio_busy = points["flag"] == "busy", points["flag"].isin(BUSY_RATIOS)
    for axes, column, low, high in (
        (line[0], "speedup_same", "speedup_same_low", "speedup_same_high"),
        (line[1], "efficiency", None, None),
        (line[2], "step_s", "step_low_s", "step_high_s"),
    ):
        axes.plot(x, points[column], color=colour, lw=1.5, alpha=0.6)
        if low and high:
            axes.vlines(x, points[low], points[high], color=colour, lw=1.5)
        hollows = busy if column == "step_s" else ratio_busy
        for position, value, hollow in zip(x, points[column], hollows, strict=True):
            style.dot(axes, position, value, colour, hollow, marker=marker, ms=7, zorder=3)
    for position, value, hollow in zip(x, points["speedup_best_serial"], ratio_busy, strict=True):
        style.dot(line[0], position, value, colour, hollow, marker="D", ms=4.5, alpha=0.7)
    line[0].plot([], [], f"{marker}-", color=colour, label=label)


def _family(text: str) -> str:
    """What grows along a line: threads of one process, or ranks of a backend (with the threads of each)."""
    found = place(text)
    if found["backend"] in ("cpu", "gpu"):
        return f"{found['backend']}, threads" if found["backend"] == "cpu" else "gpu"
    extra = f", {found['threads']} threads each" if found["threads"] > 1 else ""
    # Ranks on one node and on two are two answers, not two points of one line.
    where = f" on {found['nodes']} nodes" if found["nodes"] > 1 else ""
    return f"{found['backend']}, ranks{where}{extra}"
