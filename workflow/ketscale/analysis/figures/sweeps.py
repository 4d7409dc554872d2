"""Sweeps of one size: batch, circuit layers, qubits."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ketscale.analysis import scaling
from ketscale.analysis.figures import style
from ketscale.analysis.figures.style import PALETTE, Tables


def batch(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Time per step and per epoch against the batch size, both axes logarithmic."""
    studies = tables.of("batch")
    if not studies:
        return style.empty(tables, tables.asked("batch"))
    figure, grid = plt.subplots(
        len(studies), 2, figsize=(9.5, 3.3 * len(studies)), squeeze=False, layout="constrained"
    )
    for line, (name, points) in zip(grid, studies, strict=True):
        for axes, column, title in zip(line, ("step_s", "epoch_s"), ("step", "epoch"), strict=True):
            _curves(axes, points, column, tables if column == "step_s" else None)
            axes.set(
                title=f"time per {title} ({name})", xlabel="batch size (samples, log scale)", xscale="log"
            )
            axes.set_xticks(sorted(points["batch"].unique()), sorted(points["batch"].unique()), minor=False)
            axes.minorticks_off()
            style.log_seconds(axes.yaxis)
        line[0].legend()
    drawn = pd.concat([points for _, points in studies])
    note = "Median over seeds; dots: seeds. An epoch is steps per epoch times the median step"
    style.caption(figure, drawn, tables, [name for name, _ in studies], note)
    return figure, drawn


def depth(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Time per step against circuit layers with the least-squares line and its intercept."""
    return _sweep(tables, "depth", "circuit layers", fit=True)


def qubits(tables: Tables) -> tuple[Figure, pd.DataFrame]:
    """Time per step against qubits on a logarithmic axis."""
    return _sweep(tables, "qubits", "qubits", fit=False)


def _sweep(tables: Tables, kind: str, label: str, fit: bool) -> tuple[Figure, pd.DataFrame]:
    studies = tables.of(kind)
    if not studies:
        return style.empty(tables, tables.asked(kind))
    figure, grid = plt.subplots(
        len(studies), figsize=(9.5, 3.3 * len(studies)), squeeze=False, layout="constrained"
    )
    drawn = []
    for axes, (name, points) in zip(grid[:, 0], studies, strict=True):
        drawn.append(_with_fits(axes, points) if fit else points)
        _curves(axes, points, "step_s", tables)
        axes.set(
            title=f"time per step ({name})", xlabel=label, xticks=sorted(points["value"].astype(int).unique())
        )
        if fit:
            axes.set(ylim=(0, None), ylabel="time per step")
            axes.yaxis.set_major_formatter(lambda value, _: style.seconds(value) if value else "0")
        else:
            style.log_seconds(axes.yaxis)
        axes.legend()
    note = "Median over seeds; dots: seeds" + ("; dashed: least squares over the medians" if fit else "")
    style.caption(figure, pd.concat(drawn), tables, [name for name, _ in studies], note)
    return figure, pd.concat(drawn)


def _curves(axes: Axes, points: pd.DataFrame, column: str, tables: Tables | None) -> None:
    """A curve a simulator and place through the medians; seeds as dots where `tables` are given."""
    for number, (key, group) in enumerate(points.groupby(["simulator", "place"], sort=True)):
        colour, line = PALETTE[number], group.assign(x=group["value"].astype(int)).sort_values("x")
        axes.plot(line["x"], line[column], color=colour, lw=1.5, alpha=0.7, label=" on ".join(map(str, key)))
        for _, point in line.iterrows():
            style.dot(axes, point["x"], point[column], colour, point["flag"] == "busy", ms=7, zorder=3)
        if tables is not None:
            for _, seed in tables.seeds(group).iterrows():
                style.dot(
                    axes, int(seed["value"]), seed["step_s"], colour, not seed["quiet"], ms=3.5, alpha=0.6
                )


def _with_fits(axes: Axes, points: pd.DataFrame) -> pd.DataFrame:
    """The points with intercept_s, slope_s and r2 of their line, which is drawn; unflagged points only."""
    fitted = []
    for number, (_, group) in enumerate(points.groupby(["simulator", "place"], sort=True)):
        sound = group[group["flag"].isna()]
        x, y = [int(value) for value in sound["value"]], [float(value) for value in sound["step_s"]]
        line = scaling.fit_line(x, y)
        if line is None:
            fitted.append(group)
            continue
        ends = [0, max(x)]
        sign = "+" if line.slope >= 0 else "-"
        slope = style.seconds(abs(line.slope))
        label = f"{style.seconds(line.intercept)} {sign} {slope} a layer (R² {line.r2:.3f})"
        axes.plot(
            ends,
            [line.intercept + line.slope * v for v in ends],
            ls="--",
            color=PALETTE[number],
            lw=1,
            label=label,
        )
        fitted.append(group.assign(intercept_s=line.intercept, slope_s=line.slope, r2=line.r2))
    return pd.concat(fitted)
