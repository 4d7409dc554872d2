"""How figures look and are saved: colours, labels, footnote, files without dates. Matplotlib comes with drawing."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ketscale.analysis.drawing.inputs import Inputs
from ketscale.config import Metric
from ketscale.files import as_cell
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Seaborn's "colorblind".
PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9",
)  # fmt: skip
# After ten colours they repeat with another line style and marker. Diamonds are reserved for the best serial runs.
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "v", "P", "X")
FRAME, SOFT = "#3c4043", "#5f6368"
DATELESS: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
BUSY = "Hollow: measured on a busy machine and left out of fits"
TIMED_OUT = "Hollow: timed out, so the median of fewer steps than asked, and left out of fits"


def colour(number: int) -> str:
    """Colour number `number` of a figure."""
    return PALETTE[number % len(PALETTE)]


def line(number: int) -> dict[str, Any]:
    """Colour and line style of curve number `number` of a figure; the first forty all differ."""
    return {"color": colour(number), "ls": LINES[number // len(PALETTE) % len(LINES)]}


def marker(number: int) -> str:
    """The marker of curve number `number` of a figure; it changes after every ten curves."""
    return MARKERS[number // len(PALETTE) % len(MARKERS)]


def theme() -> None:
    """Configure matplotlib and seaborn, so that equal figures give equal SVG files."""
    import matplotlib as mpl
    import seaborn as sns

    mpl.use("Agg")  # needs no screen
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


def files(figure: Figure, data: pd.DataFrame) -> dict[str, bytes]:
    """A figure as SVG, PNG and PDF, and the drawn data as CSV: the contents of the files by their endings."""
    import matplotlib.pyplot as plt

    figure.canvas.draw()
    figure.set_layout_engine(None)  # lay out and measure once, not once per format
    box = figure.get_tightbbox().padded(0.15)
    made = {}
    for kind, metadata in DATELESS.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches=box, dpi=160)
        made[kind] = buffer.getvalue()
    plt.close(figure)
    shown = data.rename(columns=as_cell)
    for column in shown.select_dtypes(exclude=["number", "bool"]):
        shown[column] = shown[column].map(as_cell)
    text = shown.to_csv(index=False, lineterminator="\n", float_format="%.10g")
    return {**made, "csv": text.encode()}


def footnote(
    figure: Figure, points: pd.DataFrame, inputs: Inputs, studies: Iterable[str], note: str = ""
) -> None:
    """Write below the axes: n, hardware, commit, and how many runs of the studies are not in the figure."""
    parts = [note.rstrip(".")] if note else []
    if len(points):
        parts += [
            f"{name} is generated, not measured, data"
            for name in sorted(set(points["workload"]))
            if inputs.generated(name)
        ]
        low, high = int(points["n"].min()), int(points["n"].max())
        parts.append(
            f"n = {low if low == high else f'{low} to {high}'} seed{'s' if high != 1 else ''} per point"
        )
        parts += [" and ".join(sorted(set(points[column].dropna()))) for column in ("hardware", "code")]
        flags = points["flag"].dropna() if "flag" in points else ()
        parts += [
            words
            for word, words in (("busy", BUSY), ("timed_out", TIMED_OUT))
            if any(flag.startswith(word) for flag in flags)
        ]
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
    """A figure that says that nothing can be drawn yet, and which runs are missing."""
    import matplotlib.pyplot as plt
    import pandas as pd

    figure, axes = plt.subplots(figsize=(7, 1.6))
    axes.set_axis_off()
    axes.text(0.5, 0.5, "No finished run to draw yet", ha="center", va="center", fontsize=12, color=SOFT)
    footnote(figure, inputs.scaling.head(0), inputs, studies)
    return figure, pd.DataFrame()


def label(metric: Metric) -> str:
    """The axis label of a metric, with its unit."""
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


def seconds_or_zero(value: float, position: float) -> str:
    """The tick of a linear axis of durations that starts at zero."""
    return duration(value) if value else "0"


def wide(values: pd.Series[float]) -> bool:
    """Whether values span two decades or more and so need a logarithmic axis."""
    known = values.dropna()
    return bool(len(known)) and known.min() > 0 and known.max() >= 100 * known.min()


def dot(axes: Axes, x: Any, y: Any, colour: Any, hollow: bool, **more: Any) -> None:
    """One marker: filled, or hollow where the machine was busy."""
    face = "white" if hollow else colour
    axes.plot(
        x, y, **{"marker": "o", "ls": "", "color": colour, "mfc": face, "mec": colour, "mew": 1.3, **more}
    )


def end(bound: float, value: float) -> float:
    """The end of an error bar; where there is no interval, the value itself."""
    return bound if bound == bound else value


def chance(axes: Axes, value: float) -> None:
    """A horizontal line at the value that guessing gives."""
    axes.axhline(value, color=SOFT, lw=1, ls=(0, (1, 2)), label="chance")


def log_seconds(axis: Any) -> None:
    """Make the axis a logarithmic one of durations; each tick label has its own unit."""
    from ketscale.analysis.drawing import ticks

    ticks.show(axis, ticks.DURATIONS, duration)


def log_factors(axis: Any) -> None:
    """Make the axis a logarithmic one of factors, such as 0.5x and 2x."""
    from ketscale.analysis.drawing import ticks

    ticks.show(axis, ticks.DECADES, lambda value: f"{value:.3g}x")


def log_numbers(axis: Any) -> None:
    """Make the axis a logarithmic one of plain numbers, such as errors."""
    from ketscale.analysis.drawing import ticks

    ticks.show(axis, ticks.DECADES, lambda value: f"{value:.3g}")


def log_values(axis: Any, values: Iterable[float]) -> None:
    """Make the axis logarithmic with ticks only at given values, such as batches, and at fewer if they do not fit."""
    from ketscale.analysis.drawing import ticks

    ordered = sorted(set(values))
    ticks.show(axis, [ordered[::step] for step in (1, 2, 3, 4, 6, 8)], lambda value: f"{value:g}")


def legend(axes: Axes) -> None:
    """Add a legend to the right of the axes, where it covers nothing."""
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
