"""A row for each point of a study of speed: its step time, or its effect."""

from __future__ import annotations

from functools import partial

from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.points import HOLLOW, HOLLOW_RATIOS
from ketscale.analysis.wording import amount
from ketscale.words import duration

# A panel of more rows cannot be read; the table has them.
MOST = 60


def times(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Step times with their intervals and seeds; of a point that timed out before it had a time, the words."""
    points = inputs.speed[inputs.speed["step_s"].notna() | (inputs.speed["timed_out"] > 0)]
    if points["step_s"].notna().sum() < 2:
        return None
    columns = {"middle": points["step_s"], "low": points["step_low_s"], "high": points["step_high_s"]}
    words = [duration(time) if time > 0 else "timed out" for time in points["step_s"]]
    drawn = points.assign(
        **columns, words=words, hollow=points["flag"].isin(HOLLOW), dots=points.apply(inputs.seeds, axis=1)
    )
    note = "Typical time of a step; small dots: seeds"
    return _rows(drawn, inputs, "time per training step (log scale)", False, note)


def ratios(label: str, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Effects with their intervals; what is misconfigured is orange."""
    points = inputs.speed[inputs.speed["effect"].notna()]
    if len(points) < 2:
        return None
    columns = {"middle": points["effect"], "low": points["low"], "high": points["high"]}
    words = [amount(row["effect"], None, None, row["unit"])[0] for _, row in points.iterrows()]
    colours = points["mistake"].notna().map({True: 3, False: 0})
    drawn = points.assign(**columns, words=words, hollow=points["flag"].isin(HOLLOW_RATIOS), colour=colours)
    return _rows(drawn, inputs, f"{label} (log scale)", True, plots.RATIOS)


def _rows(
    points: pd.DataFrame, inputs: Inputs, label: str, factors: bool, note: str
) -> tuple[Drawing, pd.DataFrame] | None:
    """The rows in the order of the table, on a logarithmic axis of factors or seconds; None of too many."""
    panels = list(plots.parts(points, inputs, "workload"))
    most = max(len(part) for _, part in panels)
    if most > MOST:
        return None
    figure, grid = style.panels(len(panels), height=style.ROW * most + 0.7, least=3.4)
    for axes, (title, part) in zip(grid, panels, strict=True):
        for height, (_, row) in enumerate(part.iterrows()):
            colour = style.colour(int(row.get("colour", 0)))
            axes.hlines(height, row["low"], row["high"], color=colour, lw=2)
            for dot in row.get("dots", ()):
                style.dot(axes, dot, height, colour, row["hollow"], ms=3, alpha=0.5, mew=0.5)
            style.dot(axes, row["middle"], height, colour, row["hollow"], ms=6)
        (partial(style.log_numbers, unit="x") if factors else style.log_seconds)(axes.xaxis)
        if factors:
            axes.axvline(1, ls="--", color=style.FRAME, lw=1, zorder=0)
        axes.set(title=title, xlabel=label)
        axes.margins(x=0.1)
        style.name_rows(axes, part["point"], part["words"])
    style.footnote(figure, points, inputs, note)
    return figure, points.drop(columns="dots", errors="ignore")
