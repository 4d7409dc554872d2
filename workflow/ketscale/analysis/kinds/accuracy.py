"""Quality of trained models beside their classical controls: learning curves and test results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds.kind import Figure
from ketscale.analysis.kinds.quality import Quality
from ketscale.analysis.points import size_axes, size_words, variants
from ketscale.config import Metric
from ketscale.config.family import LOSS
from ketscale.grid import POINT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


class Accuracy(Quality):
    """Models that are trained by epochs, each compared with its control."""

    name = "accuracy"
    history = True

    def __init__(self) -> None:
        caption = (
            "Loss and headline metric on validation data by epoch (mean and range over seeds), and the headline "
            "metric on test data with the best weights of each seed, for models and their classical controls."
        )
        self.figure = Figure("learning", "Learning curves and test results", caption, (self.name,), self.draw)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Validation loss and metric by epoch, and each seed's test metric: a row of panels per study and family."""
        import matplotlib.pyplot as plt
        import pandas as pd

        asked = inputs.asked(self.name)
        found = [part for name in asked for part in _parts(inputs, name)]
        if not found:
            return style.empty(inputs, asked)
        figure, grid = plt.subplots(
            len(found),
            3,
            figsize=(11.5, 3.2 * len(found)),
            layout="constrained",
            width_ratios=(3, 3, 2),
            squeeze=False,
        )
        drawn = []
        for panels, (name, history, tests, metric, loss) in zip(grid, found, strict=True):
            curves = sorted({*history["curve"], *tests["curve"]})
            _learning(panels[0], history, curves, f"validation_{LOSS}", loss)
            _learning(panels[1], history, curves, f"validation_{metric.name}", metric)
            _tests(panels[2], tests, curves, metric)
            for guessed in tests.groupby("workload")["test_chance"].mean().dropna():
                for panel in panels[1:]:
                    style.chance(panel, guessed)
            panels[0].set_title(name)
            for number, curve in enumerate(curves):
                panels[2].plot([], [], lw=2, marker=style.marker(number), label=curve, **style.line(number))
            style.legend(panels[2])
            shown = ["epoch", "step", f"validation_{LOSS}", f"validation_{metric.name}"]
            test = tests[["curve", "seed", f"test_{metric.name}"]]
            both = [history[["curve", "seed", *(c for c in shown if c in history)]], test]
            drawn.append(pd.concat(both).assign(study=name, metric=metric.name))
        points = inputs.quality.merge(inputs.runs[[*POINT, "hardware", "code"]].drop_duplicates(list(POINT)))
        note = (
            "Lines: mean (a seed that has stopped keeps its last value); bands: range over seeds; test: each seed's "
            "best weights on unseen data, and their mean unless a seed failed"
        )
        style.footnote(figure, points, inputs, asked, note)
        return figure, pd.concat(drawn).sort_values(["study", "metric", "curve", "seed", "epoch"])


ACCURACY = Accuracy()


def held(history: pd.DataFrame, column: str) -> pd.DataFrame:
    """One curve over seeds: a column's mean, low and high by epoch. A seed that has stopped keeps its last value."""
    by_seed = history.pivot_table(index="epoch", columns="seed", values=column).sort_index()
    by_seed = by_seed.reindex(range(int(by_seed.index.min()), int(by_seed.index.max()) + 1)).ffill()
    ends = {"mean": by_seed.mean(axis=1), "low": by_seed.min(axis=1), "high": by_seed.max(axis=1)}
    return by_seed.assign(**ends)[list(ends)].reset_index()


def _parts(inputs: Inputs, study: str) -> list[tuple[str, pd.DataFrame, pd.DataFrame, Metric, Metric]]:
    """A study's epochs and test results by family, with its headline metric and loss; empty without results."""
    config = inputs.config
    mine = inputs.quality[inputs.quality["study"] == study]
    found = []
    for family, points in mine.groupby("family", sort=False):
        named = points[list(POINT)].assign(curve=curves(points, inputs))
        history = inputs.history.merge(named, on=list(POINT))
        tests = inputs.runs.merge(named, on=list(POINT))
        spec = config.families[str(family)]
        if len(history) and tests[f"test_{spec.headline.name}"].notna().any():
            title = study if mine["family"].nunique() == 1 else f"{study}, {spec.title}"
            found.append((title, history, tests, spec.headline, spec.loss))
    return found


def curves(points: pd.DataFrame, inputs: Inputs) -> list[str]:
    """The name of each point's curve: workload, model, size, and whatever else the study varies."""
    others = variants(points, inputs.config, but=("workload", "model", *size_axes(inputs.config)))
    names = []
    for (_, row), other in zip(points.iterrows(), others, strict=True):
        size = size_words(inputs.config, row["workload"], row["size"])
        names.append(", ".join(filter(None, [f"{row['workload']} {row['model']}", size, other])))
    return names


def _learning(axes: Axes, history: pd.DataFrame, curves: Sequence[str], column: str, metric: Metric) -> None:
    if column in history:
        for number, name in enumerate(curves):
            chosen = history[history["curve"] == name].dropna(subset=[column])
            if chosen.empty:
                continue
            line, look = held(chosen, column), style.line(number)
            # A single epoch makes no line.
            mark = style.marker(number) if len(line) == 1 else None
            axes.plot(line["epoch"], line["mean"], lw=1.8, marker=mark, **look)
            axes.fill_between(line["epoch"], line["low"], line["high"], color=look["color"], alpha=0.2, lw=0)
        if metric.better == "down" and style.wide(history[column]):
            axes.set_yscale("log")
    # Ticks at whole epochs only.
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="epoch", ylabel=f"validation {style.label(metric)}")


def _tests(axes: Axes, tests: pd.DataFrame, curves: Sequence[str], metric: Metric) -> None:
    column = f"test_{metric.name}"
    for number, name in enumerate(curves):
        values, colour = tests[tests["curve"] == name][column], style.colour(number)
        for value in values.dropna():
            style.dot(axes, number, value, colour, False, marker=style.marker(number), ms=7, alpha=0.8)
        failed = int(values.isna().sum())
        if failed:
            # The mean of the others would be that of survivors.
            axes.annotate(
                f"{failed} of {len(values)}\nfailed",
                (number, 1),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=8,
            )
        elif len(values):
            axes.plot([number - 0.25, number + 0.25], [values.mean()] * 2, lw=2.5, color=colour)
    if metric.better == "down" and style.wide(tests[column]):
        axes.set_yscale("log")
    axes.set(ylabel=f"test {style.label(metric)}", xlim=(-0.6, len(curves) - 0.4))
    axes.set_xticks([])
    axes.grid(False, axis="x")
