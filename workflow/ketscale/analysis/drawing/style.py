"""How every figure looks and is saved: colours, labels, footnote, files that hold no date. Matplotlib comes when one draws."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.points import BUSY_RATIOS
from ketscale.config import Metric
from ketscale.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Seaborn's "colorblind".
PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9",
)  # fmt: skip
# What comes after ten colours: the same with another line and marker. Diamonds are the best serial runs.
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "v", "P", "X")
FRAME, SOFT = "#3c4043", "#5f6368"
DATELESS: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
BUSY = "Hollow: the machine was busy, left out of fits"


def colour(number: int) -> str:
    """The colour of the number-th thing of a figure."""
    return PALETTE[number % len(PALETTE)]


def line(number: int) -> dict[str, Any]:
    """Colour and line of the number-th curve of a figure; no two of the first forty are alike."""
    return {"color": colour(number), "ls": LINES[number // len(PALETTE) % len(LINES)]}


def marker(number: int) -> str:
    """The marker of the number-th curve of a figure: another one after every ten."""
    return MARKERS[number // len(PALETTE) % len(MARKERS)]


def theme() -> None:
    """Set matplotlib and seaborn; the same words make the same SVG."""
    import matplotlib as mpl
    import seaborn as sns

    mpl.use("Agg")  # no screen is needed, none is asked for
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
    import matplotlib.pyplot as plt

    figure.canvas.draw()
    figure.set_layout_engine("none")  # laid out and measured once, not once a format
    box = figure.get_tightbbox().padded(0.15)
    for kind, metadata in DATELESS.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches=box, dpi=160)
        write_atomic(out / f"{name}.{kind}", buffer.getvalue())
    plt.close(figure)
    text = data.to_csv(index=False, lineterminator="\n", float_format="%.10g")
    write_atomic(out / f"{name}.csv", text.encode())


def footnote(
    figure: Figure, points: pd.DataFrame, inputs: Inputs, studies: Iterable[str], note: str = ""
) -> None:
    """Write n, hardware and commit below the axes, and how many runs of the studies are not in the figure."""
    parts = [note.rstrip(".")] if note else []
    if len(points):
        parts += [
            f"{name} is generated, not measured, data"
            for name in sorted(set(points["workload"]))
            if inputs.generated(name)
        ]
        low, high = int(points["n"].min()), int(points["n"].max())
        parts.append(
            f"n = {low if low == high else f'{low} to {high}'} seed{'s' if high != 1 else ''} a point"
        )
        parts += [" and ".join(sorted(set(points[column].dropna()))) for column in ("hardware", "code")]
        if "flag" in points and points["flag"].isin(BUSY_RATIOS).any():
            parts.append(BUSY)
    parts += _absent(inputs, set(studies))
    text = textwrap.fill(
        ". ".join(part for part in parts if part) + ".", int(figure.get_size_inches()[0] * 17)
    )
    figure.text(0.01, -0.01, text, ha="left", va="top", fontsize=8, color=SOFT, linespacing=1.5)


def _absent(inputs: Inputs, studies: set[str]) -> list[str]:
    rows = inputs.completeness[
        inputs.completeness["studies"].fillna("").map(lambda s: bool(studies & set(s.split())))
    ]
    counts = rows[rows["state"] != "completed"]["state"].value_counts().sort_index()
    listed = ", ".join(f"{count} {str(state).replace('_', ' ')}" for state, count in counts.items())
    return [f"Of {len(rows)} runs {listed}"] if listed else []


def empty(inputs: Inputs, studies: Iterable[str]) -> tuple[Figure, pd.DataFrame]:
    """A figure that says that there is nothing to draw yet, and why."""
    import matplotlib.pyplot as plt
    import pandas as pd

    figure, axes = plt.subplots(figsize=(7, 1.6))
    axes.set_axis_off()
    axes.text(0.5, 0.5, "No finished run to draw yet", ha="center", va="center", fontsize=12, color=SOFT)
    footnote(figure, inputs.scaling.head(0), inputs, studies)
    return figure, pd.DataFrame()


def label(metric: Metric) -> str:
    """A metric with its unit, for an axis."""
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


def seconds(value: float) -> str:
    """A duration with a fitting unit and three digits."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if value >= size * (1 - 1e-9):
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def seconds_or_zero(value: float, position: float) -> str:
    """The tick of a linear axis of durations that starts at zero."""
    return seconds(value) if value else "0"


def wide(values: pd.Series[float]) -> bool:
    """Whether values spread over two decades or more, and so want a logarithmic axis."""
    known = values.dropna()
    return bool(len(known)) and known.min() > 0 and known.max() >= 100 * known.min()


def dot(axes: Axes, x: Any, y: Any, colour: Any, hollow: bool, **more: Any) -> None:
    """One marker: filled, or hollow where the machine was busy."""
    face = "white" if hollow else colour
    axes.plot(
        x, y, **{"marker": "o", "ls": "", "color": colour, "mfc": face, "mec": colour, "mew": 1.3, **more}
    )


def log_seconds(axis: Any) -> None:
    """A logarithmic axis of durations whose ticks carry their own unit."""
    from ketscale.analysis.drawing import ticks

    ticks.show(axis, ticks.DURATIONS, seconds)


def log_factors(axis: Any) -> None:
    """A logarithmic axis of dimensionless factors, such as 0.5x and 2x."""
    from ketscale.analysis.drawing import ticks

    ticks.show(axis, ticks.DECADES, lambda value: f"{value:.3g}x")


def log_values(axis: Any, values: Iterable[float]) -> None:
    """A logarithmic axis with ticks at given values only, such as batches; ever fewer where they do not fit."""
    from ketscale.analysis.drawing import ticks

    ordered = sorted(set(values))
    ticks.show(axis, [ordered[::step] for step in (1, 2, 3, 4, 6, 8)], lambda value: f"{value:g}")


def legend(axes: Axes) -> None:
    """A legend on the right of the axes, where it covers nothing."""
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
