"""Lines with intervals, with a panel for each data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, np, pd
from ketscale.analysis.wording import data

RATIOS = "Ratios are of pairs of the same seed, with 95 % intervals (none below 3 seeds)"


def lines(
    points: pd.DataFrame,
    inputs: Inputs,
    x: str,
    y: str,
    ends: tuple[str, str],
    finish: Callable[[Axes, pd.DataFrame], None],
    note: str = RATIOS,
) -> tuple[Drawing, pd.DataFrame]:
    """A line for each value of the column `line`, at most six in a panel; hollow where `hollow` is true. Panels of the same
    data have the same limits.

    x, y, ends: columns of the values and of the ends of their intervals. finish: adds labels and scales to a panel, whose
    points it is given.
    """
    panels = list(parts(points, inputs, "line"))
    figure, grid = style.panels(len(panels))
    drawn = []
    for axes, (title, part) in zip(grid, panels, strict=True):
        axes.set_title(title)
        drawn.append(curves(axes, part, x, y, ends))
        finish(axes, part)
    alike(grid, [part for _, part in panels])
    for axes, named in zip(grid, drawn, strict=True):
        style.name_lines(axes, named)
    style.footnote(figure, points, inputs, note)
    return figure, points


def curves(
    axes: Axes, points: pd.DataFrame, x: str, y: str, ends: tuple[str, str] | None = None
) -> list[tuple[float, str, Any]]:
    """The lines of one panel, in the order of `x`; what `style.name_lines` takes once the axes have their limits."""
    named = []
    for number, (name, group) in enumerate(points.groupby("line", sort=True)):
        group = group.dropna(subset=[x, y]).sort_values([x, y])
        if group.empty:
            continue
        colour = style.colour(number)
        # Two points do not show a course.
        if group[x].nunique() > 2:
            axes.plot(group[x], group[y], lw=1.3, alpha=0.7, color=colour)
        if ends:
            axes.vlines(group[x], group[ends[0]], group[ends[1]], color=colour, lw=1.5)
        for _, point in group.iterrows():
            shape = point.get("shape", "o")
            style.dot(axes, point[x], point[y], colour, point["hollow"], marker=shape, ms=5, zorder=3)
        named.append((float(group[y].iloc[-1]), str(name), colour))
    return named


def alike(grid: Sequence[Axes], drawn: Sequence[pd.DataFrame]) -> None:
    """Give panels of the same data and labels the widest of their limits. drawn: the points of each panel.

    An axis whose scale is logarithmic in some of them only is left alone, and the limits of a panel without lines say nothing.
    """
    groups: dict[tuple[str, ...], list[Axes]] = {}
    for axes, part in zip(grid, drawn, strict=True):
        if axes.has_data():
            key = (part["workload"].iloc[0], axes.get_xlabel(), axes.get_ylabel())
            groups.setdefault(key, []).append(axes)
    for group in groups.values():
        for name in ("x", "y"):
            of = [getattr(axes, f"get_{name}axis")() for axes in group]
            if len(of) > 1 and len({axis.get_scale() for axis in of}) == 1:
                low, high = zip(*(axis.get_view_interval() for axis in of), strict=True)
                for axes in group:
                    axes.set(**{f"{name}lim": (min(low), max(high))})


def parts(points: pd.DataFrame, inputs: Inputs, by: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The points of each panel with its title: those of one data set, and at most six values of the column `by`."""
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
