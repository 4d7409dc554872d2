"""What trained models do over time: the best seed of each point."""

from __future__ import annotations

import textwrap

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.kinds import Figure
from ketscale.analysis.points import size_axes, size_words, variants
from ketscale.config import Config
from ketscale.grid import POINT, Run

KINDS = ("accuracy",)
LINES = ("-", "--", ":", "-.")


def kept(config: Config, run: Run) -> bool:
    """Whether a run keeps its curves."""
    return config.family(run.workload).curves is not None and config.protocols[run.protocol].keep_model


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The curves over time: the panels of each point, one after the other."""
    drawn = inputs.curves.sort_values(["workload", "model", *size_axes(inputs.config)], kind="stable")
    if drawn.empty:
        return None
    points = drawn.drop_duplicates(list(POINT))[[*POINT, *size_axes(inputs.config), "family", "seed"]]
    points = points.merge(inputs.runs, how="left")
    others = variants(points, inputs.config, but=("workload", "model", *size_axes(inputs.config)))
    groups = drawn.groupby(list(POINT), sort=False)
    shown = [
        (curves[curves["panel"] == word], spec.time, title, _title(run, inputs.config, other))
        for (_, curves), (_, run), other in zip(groups, points.iterrows(), others, strict=True)
        if (spec := inputs.config.families[run["family"]].curves)
        for word, title in spec.panels.items()
    ]
    figure, panels = style.panels(len(shown), least=3)
    for axes, (curves, time, title, name) in zip(panels, shown, strict=True):
        _panel(axes, curves)
        axes.set(xlabel=time, ylabel=title)
        axes.set_title(textwrap.fill(name, 44), fontsize=7.5)
    note = "Of each point, the seed with the best headline metric on validation data; its value above is on test data"
    style.footnote(figure, points.assign(n=1), inputs, inputs.asked(*KINDS), note)
    return figure, drawn


def _title(run: pd.Series, config: Config, other: str) -> str:
    """The point, its seed, and the headline metric."""
    metric = config.families[run["family"]].headline
    size = size_words(config, run["workload"], run["size"])
    parts = (f"{run['workload']} {run['model']}", size, other, f"seed {run['seed']}")
    return f"{', '.join(filter(None, parts))}: {metric.title} {run[f'test_{metric.name}']:.3g}"


def _panel(axes: Axes, curves: pd.DataFrame) -> None:
    """The curves of a panel: a number at the end of a name chooses the colour, the words before it the line style."""
    words = {str(name): str(name).split("_")[1:] for name in curves["curve"].unique()}
    lines = list(dict.fromkeys(tuple(parts[:-1]) for parts in words.values()))
    for name, curve in curves.groupby("curve", sort=False):
        *first, last = words[str(name)]
        colour = style.colour(int(last)) if last.isdigit() else style.FRAME
        ls = LINES[lines.index(tuple(first)) % len(LINES)]
        axes.plot(curve["time"], curve["value"], lw=1.4, color=colour, ls=ls, label=" ".join([*first, last]))
    axes.margins(x=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


CURVES = Figure(
    "curves",
    "What trained models do over time",
    "Curves of trained models over time, one row of panels for each point: of the seed with the best headline metric "
    "on validation data.",
    KINDS,
    draw,
    kept,
)
