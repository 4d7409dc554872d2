"""What figures are drawn from and made of (rows of points, lines with intervals), how they look, and how they are saved."""

from __future__ import annotations

import io
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis import columns
from ketscale.analysis.heavy import Axes, Drawing, mpl, np, pd, plt
from ketscale.analysis.points import BUSY, TIMED_OUT
from ketscale.analysis.wording import amount, data, listed, modes, unfinished
from ketscale.config import Config
from ketscale.files import csv_of
from ketscale.words import counted

# The tables that have the rows of single studies.
OWN = ("speed", "quality", "fits")
# Seaborn's "colorblind".
PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9",
)  # fmt: skip
FRAME, SOFT, PALE = "#3c4043", "#5f6368", "#d0d3d6"
# The width of a figure in inches: two columns of a paper.
WIDTH = 7.16
# The most lines in a panel that can be distinguished, the most readable rows, and the height of a row in inches.
SERIES, MOST_ROWS, ROW = 8, 60, 0.36
# Characters in an inch of a title, of the name of a row, and of the note.
TITLE_DENSITY, ROW_DENSITY, NOTE_DENSITY = 12, 16, 20
DATELESS: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
# What an axis of ratios says of its values.
FACTOR = "{:.3g}x".format
# By flags of points.
NOTES = {
    BUSY: "Hollow: measured on a busy machine and excluded from fits",
    TIMED_OUT: "Hollow: timed out, so the median of fewer steps than asked, and excluded from fits",
}
RATIOS = "Ratios are of pairs of the same seed, with 95 % intervals (none below 3 seeds)"


@dataclass(frozen=True)
class Inputs:
    """The tables that figures are drawn from, and the config of their studies."""

    config: Config
    runs: pd.DataFrame
    speed: pd.DataFrame
    quality: pd.DataFrame
    fits: pd.DataFrame

    def only(self, studies: Collection[str]) -> Inputs:
        """What a figure of some studies gets: their rows."""
        studied = tuple(each for each in self.config.studies if each.name in studies)
        selected = self.runs["studies"].fillna("").map(lambda names: not {*names.split()}.isdisjoint(studies))
        own = {name: table[table["study"].isin(studies)] for name, table in vars(self).items() if name in OWN}
        return replace(self, config=replace(self.config, studies=studied), runs=self.runs[selected], **own)


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in their order; none comes twice."""
    import seaborn as sns

    unique = list(names)
    palette = sns.color_palette("colorblind" if len(unique) <= len(PALETTE) else "husl", len(unique))
    return dict(zip(unique, palette.as_hex(), strict=True))


def theme() -> None:
    """Configure matplotlib and seaborn, so that equal figures give equal SVG files."""
    import seaborn as sns

    mpl.use("Agg")  # needs no screen
    changes = {
        "svg.hashsalt": "ketscale",
        # Text can be searched, and set in another font of about the same width where the first is missing.
        "svg.fonttype": "none",
        "font.sans-serif": ["DejaVu Sans", "Verdana"],
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.edgecolor": FRAME,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "grid.color": "#e4e6e8",
        "grid.linewidth": 0.6,
    }
    # Labels and titles of 8 points.
    sns.set_theme("paper", "whitegrid", "colorblind", font="sans-serif", font_scale=8 / 9.6, rc=changes)


def files(draw: Callable[[Inputs], tuple[Drawing, pd.DataFrame] | None], inputs: Inputs) -> dict[str, bytes]:
    """What `draw` draws of the inputs, if anything, and the drawn data as CSV: the contents of the files by their endings."""
    drawing = draw(inputs)
    if drawing is None:
        return {}
    figure, data = drawing
    table = data.astype(object).where(data.notna(), None)
    return {**_saved(figure), "csv": csv_of(columns.rows(table), list(map(str, data)))}


def _saved(figure: Drawing) -> dict[str, bytes]:
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # It is laid out once, not once for each form.
    buffers = {form: io.BytesIO() for form in DATELESS}
    for form, buffer in buffers.items():
        figure.savefig(buffer, format=form, metadata=DATELESS[form], dpi=200)
    plt.close(figure)
    return {form: buffer.getvalue() for form, buffer in buffers.items()}


def panels(count: int, height: float = 2.3, least: float = 2.2) -> tuple[Drawing, list[Axes]]:
    """A figure of so many panels of a height in inches: as many side by side as have the `least` width, the others below."""
    across = min(count, int(WIDTH / least))
    size = WIDTH, -(-count // across) * height
    figure, grid = plt.subplots(
        -(-count // across), across, figsize=size, squeeze=False, layout="constrained"
    )
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, list(grid.flat[:count])


def _share(axes: Axes) -> float:
    """The width of a panel and of its margins, in inches."""
    grid = axes.get_gridspec()
    assert grid is not None
    return WIDTH / grid.ncols


def title(axes: Axes, words: str) -> None:
    """Write a title above a panel, on as many lines as it needs there."""
    axes.set_title(textwrap.fill(words, int(TITLE_DENSITY * _share(axes))))


def legend(axes: Axes, colours: Mapping[str, str]) -> None:
    """Write the names of lines in their colours right of the axes."""
    lines = [
        plt.Line2D([], [], color=colour, marker="o", label=textwrap.fill(name, 22))
        for name, colour in colours.items()
        if name
    ]
    if lines:
        axes.legend(
            handles=lines, loc="center left", bbox_to_anchor=(1, 0.5), labelcolor="linecolor", handlelength=1
        )


def name_rows(axes: Axes, names: Iterable[str], texts: Iterable[str]) -> None:
    """Write above each row of the axes (at 0, 1, ... from above) its name, shortened if needed, and its description."""
    most = int(ROW_DENSITY * _share(axes))
    labels = [
        f"{_shortened(name, most - len(words))}: {words}" for name, words in zip(names, texts, strict=True)
    ]
    axes.set_yticks([row - 0.22 for row in range(len(labels))], labels, ha="left", va="bottom")
    axes.tick_params(axis="y", pad=-3, length=0)
    axes.set_ylim(len(labels) - 0.6, -0.95)
    axes.grid(False, axis="y")


def _shortened(name: str, most: int) -> str:
    """A name without its middle if it has more characters: its end distinguishes it from its neighbours."""
    head = most // 3
    return name if len(name) <= most else f"{name[:head].rstrip()} … {name[head + 3 - most :].lstrip()}"


def footnote(figure: Drawing, points: pd.DataFrame, inputs: Inputs, note: str = "") -> None:
    """Write below a figure of some points what simulators draw, n, hardware, commit, and how many runs are not in it."""
    parts = [note.rstrip("."), *modes(inputs.config, points["simulator"])]
    names = sorted(set(points["workload"]))
    generated = [name for name in names if inputs.config.block(name)[1].generated]
    parts.append(f"Generated, not measured, data: {listed(generated)}" if generated else "")
    low, high = int(points["n"].min()), int(points["n"].max())
    seeds = counted(high, "seed")
    parts.append(f"n = {seeds if low == high else f'{low} to {seeds}'} per point")
    parts += [" and ".join(sorted(set(points[column].dropna()))) for column in ("hardware", "code")]
    flags = points["flag"].dropna() if "flag" in points else ()
    parts += [note for word, note in NOTES.items() if any(flag.startswith(word) for flag in flags)]
    parts.append(unfinished(Counter(inputs.runs["status"])))
    lines = textwrap.wrap(". ".join(part for part in parts if part) + ".", int(NOTE_DENSITY * WIDTH))
    figure.set_figheight(figure.get_figheight() + 0.05 + 0.125 * len(lines))
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=6.5, color=SOFT, linespacing=1.4)


def omission(count: int, most: int, what: str) -> str:
    """How many are not drawn, in words; '' if all are."""
    return f". Not drawn: {counted(count - most, what)} more" if count > most else ""


def values(axes: Axes, numbers: Iterable[float], scale: str = "linear") -> None:
    """Give the x axis ticks at values, such as batches, of which at most eight are labelled."""
    every = sorted(set(numbers))
    ticks = every[:: -(-len(every) // 8)]
    axes.set_xscale(scale)
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.minorticks_off()


def logarithmic(axis: Any, words: Callable[[float], str] = "{:.3g}".format) -> None:
    """Make the axis logarithmic with as many labels as fit in the view, also where it is less than a decade.

    words: what a label says of its value, such as a duration with its unit.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = getattr(axis.axes, f"get_{axis.axis_name}lim")()
    decades = math.log10(high / low)
    subs = (1, 2, 5) if decades < 1.7 else (1, 3) if decades < 2.5 else (1,)
    axis.set_major_locator(MaxNLocator(3) if decades < 0.7 else LogLocator(subs=subs, numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
    axis.set_minor_locator(NullLocator())


def forest(
    parts: Sequence[tuple[str, pd.DataFrame]],
    inputs: Inputs,
    note: str = "",
    label: str = "",
    words: Callable[[float], str] | None = None,
    none: float | None = None,
) -> tuple[Drawing, pd.DataFrame] | None:
    """A panel for each part of some points, which has a title, with a row for each point, the first one at the top; None if
    there are too many to be read.

    parts: with the columns name, words, value, low, high, colour and hollow (busy, timed out, or some seeds failed).
    words: what a logarithmic axis says of its values; without them it is linear. none: the value that is no effect.
    """
    most = max(len(points) for _, points in parts)
    if most > MOST_ROWS:
        return None
    figure, grid = panels(len(parts), height=ROW * most + 0.8, least=3.4)
    for axes, (heading, points) in zip(grid, parts, strict=True):
        _rows(axes, points)
        if none is not None:
            axes.axvline(none, ls="--", color=FRAME, lw=1, zorder=0)
        if words:
            logarithmic(axes.xaxis, words)
        title(axes, heading)
        axes.set_xlabel(label)
    every = pd.concat([points for _, points in parts])
    footnote(figure, every[every["workload"].notna()], inputs, note)
    return figure, every


def _rows(axes: Axes, points: pd.DataFrame) -> None:
    """The interval of each point, its value, and above them its name and its words."""
    heights, colours = range(len(points)), points["colour"].tolist()
    axes.hlines(heights, points["low"], points["high"], colors=colours, lw=2)
    faces = points["colour"].where(~points["hollow"], "white")
    axes.scatter(points["value"], heights, 32, facecolors=faces, edgecolors=colours, lw=1.3, zorder=3)
    axes.margins(x=0.1)
    name_rows(axes, points["name"], points["words"])


def effects(points: pd.DataFrame) -> pd.DataFrame:
    """The points for `forest`, with their names and their effects, in words such as '1.5 times as fast'."""
    words = points.apply(lambda row: amount(row["effect"], None, None, row["unit"])[0], axis="columns")
    return points.assign(name=points["point"], value=points["effect"], words=words)


def curves(
    axes: Axes,
    points: pd.DataFrame,
    x: str,
    y: str,
    ends: Sequence[str] = (),
    palette: Mapping[str, str] | None = None,
) -> None:
    """A line for each value of the column `line`, with dots that are hollow where `hollow` is true, and intervals.

    x, y, ends: columns of the values and of the ends of their intervals. palette: of lines; without it each gets a colour,
    and the legend says which.
    """
    palette_of = palette or colours(sorted(points["line"].unique()))
    for name, group in points.dropna(subset=[x, y]).groupby("line", sort=True):
        group, colour = group.sort_values([x, y]), palette_of[str(name)]
        # Two points do not show a course.
        if group[x].nunique() > 2:
            axes.plot(group[x], group[y], lw=1.3, alpha=0.7, color=colour)
        if ends:
            axes.vlines(group[x], group[ends[0]], group[ends[1]], color=colour, lw=1.5)
        faces = ["white" if hollow else colour for hollow in group["hollow"]]
        axes.scatter(group[x], group[y], 25, facecolors=faces, edgecolors=colour, lw=1.3, zorder=3)
    if palette is None:
        legend(axes, palette_of)


def parts(points: pd.DataFrame, inputs: Inputs, by: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The points of each panel with its title: those of one data set, and at most eight values of the column `by`."""
    for workload, group in points.groupby("workload", sort=True):
        names = sorted(group[by].unique())
        # As many in each as in the others, so that none is alone.
        chunks = np.array_split(names, -(-len(names) // SERIES))
        for number, chunk in enumerate(chunks, 1):
            title = data(str(workload), inputs.config)
            yield (
                f"{title} ({number} of {len(chunks)})" if len(chunks) > 1 else title,
                group[group[by].isin(chunk)],
            )
