"""How figures look and are saved: colours, labels, footnote, files without dates. Matplotlib comes with drawing."""

from __future__ import annotations

import io
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, mpl, pd, plt
from ketscale.analysis.wording import listed, modes, unfinished
from ketscale.config import Metric
from ketscale.files import as_cell
from ketscale.words import duration

Draw: TypeAlias = "Callable[[Inputs], tuple[Drawing, pd.DataFrame] | None]"

# Seaborn's "colorblind".
PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9",
)  # fmt: skip
FRAME, SOFT = "#3c4043", "#5f6368"
# Inches: of a screen and two columns of a paper; of a phone and one column. By what the names of their files have before
# the ending.
WIDTHS = {"": 7.16, "narrow.": 3.5}
# The most lines in a panel that can be told apart, and the height of a row in inches.
SERIES, ROW = 6, 0.36
# The width of a character.
_CHARACTER_INCHES = 0.06
DATELESS: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
_NOTE = {"svg": "Description", "pdf": "Subject", "png": "Description"}
BUSY = "Hollow: measured on a busy machine and left out of fits"
TIMED_OUT = "Hollow: timed out, so the median of fewer steps than asked, and left out of fits"


def colour(number: int) -> str:
    """Colour number `number` of a figure."""
    return PALETTE[number % len(PALETTE)]


def theme() -> None:
    """Configure matplotlib and seaborn, so that equal figures give equal SVG files."""
    import seaborn as sns

    mpl.use("Agg")  # needs no screen
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind", font="DejaVu Sans")
    mpl.rcParams.update(
        {
            "svg.hashsalt": "ketscale",
            # Text can be searched and set in another font, and publishers refuse fonts of Type 3.
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
            "font.size": 8,
            "axes.titlesize": 8.5,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.labelsize": 8,
            "xtick.labelsize": 7.5,
            "ytick.labelsize": 7.5,
            "legend.fontsize": 7.5,
            "legend.frameon": False,
            "axes.edgecolor": FRAME,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "lines.linewidth": 1.3,
            "lines.markersize": 4.5,
            "grid.color": "#e4e6e8",
            "grid.linewidth": 0.6,
            "figure.dpi": 110,
        }
    )


def files(draw: Draw, inputs: Inputs, paper: bool = False) -> dict[str, bytes]:
    """What `draw` draws of the inputs, at each width, and the drawn data as CSV: the contents of the files by their endings.

    The files of a paper are vector graphics, and have their note (what was measured where, by which code) only in their
    metadata; the others also show it. Nothing if there is nothing to draw.
    """
    made: dict[str, bytes] = {}
    for ending, width in WIDTHS.items():
        with mpl.rc_context({"figure.figsize": (width, 2.4)}):
            drawn = draw(inputs)
            if drawn is None:
                return {}
            figure, data = drawn
            forms = ("svg", "pdf") if paper else ("svg",) if ending else ("svg", "png")
            made |= {f"{ending}{form}": content for form, content in _saved(figure, forms, paper).items()}
    return made if paper else {**made, "csv": _csv(data)}


def _saved(figure: Drawing, forms: Sequence[str], paper: bool) -> dict[str, bytes]:
    from matplotlib.transforms import Bbox

    note = str(figure.get_label())
    if note and not paper:
        lines = textwrap.fill(note, int(figure.get_size_inches()[0] * 20))
        figure.text(0.01, -0.01, lines, ha="left", va="top", fontsize=6.5, color=SOFT, linespacing=1.4)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # lay out and measure once, not once per format
    tight = figure.get_tightbbox().padded(0.02)
    # As wide as was asked for, so that text is equally large in all figures.
    box = Bbox([[min(0.0, tight.x0), tight.y0], [max(figure.get_figwidth(), tight.x1), tight.y1]])
    made = {}
    for form in forms:
        buffer = io.BytesIO()
        metadata = {**DATELESS[form], _NOTE[form]: note}
        figure.savefig(buffer, format=form, metadata=metadata, bbox_inches=box, dpi=200)
        # Other fonts of about the same widths for who has not this one.
        made[form] = buffer.getvalue().replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif")
    plt.close(figure)
    return made


def _csv(data: pd.DataFrame) -> bytes:
    shown = data.rename(columns=as_cell)
    for column in shown.select_dtypes(exclude=["number", "bool"]):
        shown[column] = shown[column].map(as_cell)
    return shown.to_csv(index=False, lineterminator="\n", float_format="%.10g").encode()


def width() -> float:
    """The width of the figure that is drawn, in inches."""
    return float(mpl.rcParams["figure.figsize"][0])


def panels(count: int, height: float = 2.3, least: float = 2.2) -> tuple[Drawing, list[Axes]]:
    """A figure of so many panels: as many side by side as have the `least` width in inches, and the others below them.

    height: of a panel, in inches.
    """
    columns = min(count, max(1, int(width() / least)))
    rows = -(-count // columns)
    size = (width(), rows * height)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, list(grid.flat[:count])


def name_lines(axes: Axes, ends: Iterable[tuple[float, str, Any]]) -> None:
    """Write the names of lines right of the axes in their colours, the highest first.

    Args:
        ends: of each line the y at its end, its name and its colour.
    """
    ordered = sorted(ends, key=lambda end: (-end[0], end[1]))
    lines = [
        plt.Line2D([], [], color=colour, label=textwrap.fill(name, 22)) for _, name, colour in ordered if name
    ]
    if lines:
        axes.legend(
            handles=lines,
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            labelcolor="linecolor",
            fontsize=7,
            handlelength=0,
        )


def name_rows(axes: Axes, names: Iterable[str], said: Iterable[str] = ()) -> None:
    """Write above each row of the axes (at 0, 1, ... from above) its name, and what is said of it at the right."""
    rows, words_of = list(names), list(said)
    figure = axes.get_figure(root=True)
    assert figure is not None
    room = int(axes.get_position().width * figure.get_size_inches()[0] / _CHARACTER_INCHES)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "bottom", "fontsize": 7.5}
    for height, (name, words) in enumerate(zip(rows, words_of or [""] * len(rows), strict=True)):
        name = textwrap.shorten(name, max(12, room - len(words)), placeholder=" …")
        axes.annotate(name, (0.01, height - 0.3), ha="left", **place)
        axes.annotate(words, (0.99, height - 0.3), ha="right", **place)
    axes.set(yticks=[], ylim=(len(rows) - 0.6, -0.95))
    axes.grid(False, axis="y")


def footnote(figure: Drawing, points: pd.DataFrame, inputs: Inputs, note: str = "") -> None:
    """The note of a figure, which `files` saves with it: what simulators draw, n, hardware, commit, and how many runs are not in it."""
    parts = [note.rstrip("."), *modes(inputs.config, *inputs.names)]
    if len(points):
        names = sorted(set(points["workload"]))
        generated = [name for name in names if inputs.config.block(name)[1].generated]
        parts.append(f"Generated, not measured, data: {listed(generated)}" if generated else "")
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
    parts.append(unfinished(Counter(inputs.runs["status"])))
    figure.set_label(". ".join(part for part in parts if part) + ".")


def label(metric: Metric) -> str:
    """The axis label of a metric, with its unit."""
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


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


def log_seconds(axis: Any) -> None:
    """Make the axis a logarithmic one of durations; each tick label has its own unit."""
    _logarithmic(axis, duration)


def log_numbers(axis: Any, unit: str = "") -> None:
    """Make the axis a logarithmic one of numbers, such as errors, or with the unit 'x' of factors."""
    _logarithmic(axis, lambda value: f"{value:.3g}{unit}")


def log_values(axis: Any, values: Iterable[float]) -> None:
    """Make the axis logarithmic with ticks only at given values, such as batches, of which at most eight are labelled."""
    from matplotlib.ticker import FixedLocator

    ordered = sorted(set(values))
    _logarithmic(axis, lambda value: f"{value:g}")
    axis.set_major_locator(FixedLocator(ordered[:: -(-len(ordered) // 8)]))


def _logarithmic(axis: Any, words: Callable[[float], str]) -> None:
    """Make the axis logarithmic with as many labels as fit, also where less than a decade is in view."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    class Ticks(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            decades = math.log10(vmax / vmin)
            if decades < 0.7:
                return [tick for tick in MaxNLocator(3).tick_values(vmin, vmax) if tick > 0]
            self.set_params(
                subs=(1, 2, 5) if decades < 1.7 else (1, 3) if decades < 2.5 else (1,), numticks=6
            )
            return super().tick_values(vmin, vmax)

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(Ticks())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
    axis.set_minor_locator(NullLocator())
