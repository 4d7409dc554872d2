"""How every figure looks and is saved: palette, labels, caption, four files that hold no date."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # no screen is needed, none is asked for

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ketscale.analysis.scaling import BUSY_RATIOS, POINT
from ketscale.files import write_atomic
from ketscale.problems.workloads import WORKLOADS

PALETTE = sns.color_palette("colorblind")
FRAME = "#3c4043"
DATELESS: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
BUSY = "hollow: the machine was busy, left out of fits"


@dataclass(frozen=True)
class Tables:
    """The tables that figures are drawn from, with the config of their study."""

    config: dict[str, Any]
    runs: pd.DataFrame
    scaling: pd.DataFrame
    accuracy: pd.DataFrame
    spans: pd.DataFrame
    history: pd.DataFrame
    completeness: pd.DataFrame

    def of(self, kind: str) -> list[tuple[str, pd.DataFrame]]:
        """The studies of this kind by name with their points that have a step time."""
        rows = self.scaling[(self.scaling["kind"] == kind) & self.scaling["step_s"].notna()]
        named = [(name, rows[rows["study"] == name]) for name in self.asked(kind)]
        return [(name, points) for name, points in named if len(points)]

    def points_of(self, kind: str) -> pd.DataFrame:
        """The points of all studies of this kind below one another; no rows where there are none."""
        return pd.concat([self.scaling.head(0), *(points for _, points in self.of(kind))])

    def asked(self, *kinds: str) -> list[str]:
        """The names of the studies of these kinds, with or without a finished run."""
        return [name for name, study in self.config["studies"].items() if study["kind"] in kinds]

    def seeds(self, points: pd.DataFrame) -> pd.DataFrame:
        """The completed, unresumed runs behind the points with their times of a step: one row a seed."""
        runs = self.runs[(self.runs["status"] == "completed") & (self.runs["resumed"] == 0)]
        times = ["step_s", "step_with_first_s", "step_with_start_s"]
        columns = [*POINT, "study", "value", "flag"]
        return runs[[*POINT, "seed", "quiet", *times]].merge(points[columns], on=list(POINT))


def theme() -> None:
    """Set matplotlib and seaborn; the same words make the same SVG."""
    sns.set_theme(context="notebook", style="whitegrid", palette="colorblind", font="DejaVu Sans")
    mpl.rcParams.update(
        {
            "svg.hashsalt": "ketscale",
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.labelsize": 10,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.fontsize": 8.5,
            "legend.frameon": False,
            "axes.edgecolor": FRAME,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.color": "#e4e6e8",
            "figure.dpi": 110,
        }
    )


def save(figure: Figure, data: pd.DataFrame, name: str, out: Path) -> None:
    """Write out/name.svg, .png, .pdf, and .csv with what was drawn, each atomically."""
    figure.canvas.draw()
    figure.set_layout_engine("none")  # laid out and measured once, not once a format
    box = figure.get_tightbbox().padded(0.15)
    for kind, metadata in DATELESS.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches=box, dpi=160)
        write_atomic(out / f"{name}.{kind}", buffer.getvalue())
    plt.close(figure)
    write_atomic(
        out / f"{name}.csv", data.to_csv(index=False, lineterminator="\n", float_format="%.10g").encode()
    )


def caption(
    figure: Figure, points: pd.DataFrame, tables: Tables, studies: Iterable[str], note: str = ""
) -> None:
    """Write n, hardware and commit below the axes, and how many runs of the studies are not in the figure."""
    parts = [note.rstrip(".")] if note else []
    parts += [
        f"{name} is generated, not measured, data"
        for name in sorted(set(points["workload"]) if "workload" in points else ())
        if name in WORKLOADS and WORKLOADS[name].generated
    ]
    if len(points):
        low, high = int(points["n"].min()), int(points["n"].max())
        parts.append(
            f"n = {low if low == high else f'{low} to {high}'} seed{'s' if high != 1 else ''} a point"
        )
        parts += [" and ".join(sorted(set(points[column].dropna()))) for column in ("hardware", "code")]
        if "flag" in points and points["flag"].isin(BUSY_RATIOS).any():
            parts.append(BUSY)
    parts += _absent(tables, set(studies))
    text = textwrap.fill(
        ". ".join(part for part in parts if part) + ".", int(figure.get_size_inches()[0] * 17)
    )
    figure.text(0.01, -0.01, text, ha="left", va="top", fontsize=8, color="#5f6368", linespacing=1.5)


def _absent(tables: Tables, studies: set[str]) -> list[str]:
    rows = tables.completeness[
        tables.completeness["studies"].fillna("").map(lambda s: bool(studies & set(s.split())))
    ]
    counts = rows[rows["state"] != "done"]["state"].value_counts().sort_index()
    listed = ", ".join(f"{count} {str(state).replace('_', ' ')}" for state, count in counts.items())
    return [f"Of {len(rows)} runs {listed}"] if listed else []


def empty(tables: Tables, studies: Iterable[str]) -> tuple[Figure, pd.DataFrame]:
    """A figure that says that there is nothing to draw yet, and why."""
    figure, axes = plt.subplots(figsize=(7, 1.6))
    axes.set_axis_off()
    axes.text(0.5, 0.5, "No finished run to draw yet", ha="center", va="center", fontsize=12, color="#5f6368")
    caption(figure, tables.scaling.head(0), tables, studies)
    return figure, pd.DataFrame()


def variants(points: pd.DataFrame, but: Iterable[str] = ()) -> pd.Series:
    """For each point in words what it varies besides its place; empty where a study varies nothing else."""
    words = {"model": "{}", "qubits": "{} qubits", "layers": "{} layers", "simulator": "{}", "protocol": "{}"}
    varied = [name for name in words if name not in but and points[name].nunique() > 1]
    return pd.Series(
        [", ".join(words[name].format(row[name]) for name in varied) for _, row in points.iterrows()],
        index=points.index,
        dtype=str,
    )


def seconds(value: float) -> str:
    """A duration with a fitting unit and three digits."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if value >= size * (1 - 1e-9):
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


# More labels than this run into each other in a panel.
MOST_TICKS = 5
# Ticks that a reader of durations expects: decades below a second, then minutes and hours.
DECADES = (*(10.0**k for k in range(-6, 2)), 60.0, 600.0, 3600.0, 36e3, 36e4, 36e5)


def log_seconds(axis: Any) -> None:
    """A logarithmic axis of durations whose ticks carry their own unit; its limits must be set before."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = sorted(getattr(axis.axes, f"get_{axis.axis_name}lim")())
    ticks = [tick for tick in DECADES if low <= tick <= high]
    if len(ticks) < 3:
        ticks = [tick * part for tick in DECADES for part in (1, 2, 3, 5) if low <= tick * part <= high]
    ticks = ticks[:: max(1, -(-len(ticks) // MOST_TICKS))]
    axis.set_ticks(ticks, [seconds(tick) for tick in ticks])
    axis.set_minor_locator(mpl.ticker.NullLocator())


def dot(axes: Axes, x: Any, y: Any, colour: Any, hollow: bool, **more: Any) -> None:
    """One marker: filled, or hollow where the machine was busy."""
    face = "white" if hollow else colour
    axes.plot(
        x, y, **{"marker": "o", "ls": "", "color": colour, "mfc": face, "mec": colour, "mew": 1.3, **more}
    )


Drawer = Callable[[Tables], tuple[Figure, pd.DataFrame]]
