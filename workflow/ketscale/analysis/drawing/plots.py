"""What most figures are made of: rows of points, and lines with intervals, with a panel for each data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.style import Inputs
from ketscale.analysis.heavy import Axes, np, pd
from ketscale.analysis.wording import amount, data

RATIOS = "Ratios are of pairs of the same seed, with 95 % intervals (none below 3 seeds)"


def rows(axes: Axes, points: pd.DataFrame) -> None:
    """A row for each point, the first one at the top: its interval, its value, and above them its name and its words.

    points: with the columns name, words, value, low, high, colour and hollow (busy, timed out, or some seeds failed).
    """
    heights, colours = range(len(points)), points["colour"].tolist()
    axes.hlines(heights, points["low"], points["high"], colors=colours, lw=2)
    faces = points["colour"].where(~points["hollow"], "white")
    axes.scatter(points["value"], heights, 32, facecolors=faces, edgecolors=colours, lw=1.3, zorder=3)
    axes.margins(x=0.1)
    style.name_rows(axes, points["name"], points["words"])


def effects(points: pd.DataFrame) -> pd.Series[str]:
    """The effects of points in words, such as '1.5 times as fast'."""
    return points.apply(lambda row: amount(row["effect"], None, None, row["unit"])[0], axis="columns")


def curves(
    axes: Axes,
    points: pd.DataFrame,
    x: str,
    y: str,
    ends: tuple[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
) -> None:
    """A line for each value of the column `line`, with dots that are hollow where `hollow` is true, and intervals.

    x, y, ends: columns of the values and of the ends of their intervals. colours: by line; without them each gets one, and
    the legend tells which.
    """
    named = colours or style.colours(sorted(points["line"].unique()))
    for name, group in points.dropna(subset=[x, y]).groupby("line", sort=True):
        group, colour = group.sort_values([x, y]), named[str(name)]
        # Two points do not show a course.
        if group[x].nunique() > 2:
            axes.plot(group[x], group[y], lw=1.3, alpha=0.7, color=colour)
        if ends:
            axes.vlines(group[x], group[ends[0]], group[ends[1]], color=colour, lw=1.5)
        faces = ["white" if hollow else colour for hollow in group["hollow"]]
        axes.scatter(group[x], group[y], 25, facecolors=faces, edgecolors=colour, lw=1.3, zorder=3)
    if colours is None:
        style.legend(axes, named)


def parts(points: pd.DataFrame, inputs: Inputs, by: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The points of each panel with its title: those of one data set, and at most eight values of the column `by`."""
    for workload, group in points.groupby("workload", sort=True):
        names = sorted(group[by].unique())
        # As many in each as in the others, so that none stands alone.
        chunks = np.array_split(names, -(-len(names) // style.SERIES))
        for number, chunk in enumerate(chunks, 1):
            title = data(str(workload), inputs.config)
            yield (
                f"{title} ({number} of {len(chunks)})" if len(chunks) > 1 else title,
                group[group[by].isin(chunk)],
            )
