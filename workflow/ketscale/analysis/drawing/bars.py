"""A row for each point of a study of speed: its step time, or its effect."""

from __future__ import annotations

from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.points import HOLLOW, HOLLOW_RATIOS
from ketscale.words import duration

# A panel of more rows cannot be read; the table has them.
MOST = 60


def times(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Step times with their intervals; of a point that timed out before it had a time, the words."""
    points = inputs.speed[inputs.speed["step_s"].notna() | (inputs.speed["timed_out"] > 0)]
    if points["step_s"].notna().sum() < 2:
        return None
    drawn = points.assign(
        value=points["step_s"],
        low=points["step_low_s"],
        high=points["step_high_s"],
        words=[duration(time) if time > 0 else "timed out" for time in points["step_s"]],
        hollow=points["flag"].isin(HOLLOW),
        colour=style.colour(0),
    )
    return _rows(drawn, inputs, "time per training step (log scale)", "Typical time of a step")


def ratios(label: str, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Effects with their intervals; what is misconfigured is orange."""
    points = inputs.speed[inputs.speed["effect"].notna()]
    if len(points) < 2:
        return None
    drawn = points.assign(
        value=points["effect"],
        words=plots.effects(points),
        hollow=points["flag"].isin(HOLLOW_RATIOS),
        colour=points["mistake"].notna().map({True: style.colour(3), False: style.colour(0)}),
    )
    return _rows(drawn, inputs, f"{label} (log scale)", plots.RATIOS, "x")


def _rows(
    points: pd.DataFrame, inputs: Inputs, label: str, note: str, unit: str = ""
) -> tuple[Drawing, pd.DataFrame] | None:
    """The rows in the order of the table, on a logarithmic axis of seconds, or with a unit of factors; None of too many."""
    points = points.assign(name=points["point"])
    panels = list(plots.parts(points, inputs, "workload"))
    most = max(len(part) for _, part in panels)
    if most > MOST:
        return None
    figure, grid = style.panels(len(panels), height=style.ROW * most + 0.7, least=3.4)
    for axes, (title, part) in zip(grid, panels, strict=True):
        plots.rows(axes, part)
        if unit:
            axes.axvline(1, ls="--", color=style.FRAME, lw=1, zorder=0)
            style.log_numbers(axes.xaxis, unit)
        else:
            style.log_seconds(axes.xaxis)
        style.title(axes, title)
        axes.set_xlabel(label)
    style.footnote(figure, points, inputs, note)
    return figure, points
