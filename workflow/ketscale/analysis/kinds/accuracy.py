"""Quality of trained models beside their controls: test results with intervals, and learning curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds.quality import Quality
from ketscale.analysis.points import variants
from ketscale.config import Metric
from ketscale.grid import POINT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Part:
    """The models of one data set of a study that are drawn: the best configurations of at most six.

    models: their rows of quality.csv, the best first, with the name of each as `curve`. left: how many more there are.
    """

    study: str
    workload: str
    metric: Metric
    models: pd.DataFrame
    left: int

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of these models in a table with the columns of a point, with their `curve`."""
        return table.merge(self.models[[*POINT, "curve"]], on=list(POINT))


class Accuracy(Quality):
    """Models that are trained by epochs, each compared with its best control."""

    name = "accuracy"
    history = True

    title = "Test results and learning curves"
    caption = (
        "The headline metric on test data with the best weights, with its 95 % interval, and on validation data by "
        "epoch: a line for each seed, which ends where its training ended. Hollow: some seeds failed."
    )

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """Two panels for each data set: test results, and each seed's validation metric by epoch."""
        import pandas as pd

        asked = inputs.asked(self.name)
        found = [part for name in asked for part in parts(inputs, name)]
        if not found:
            return None
        figure, panels = style.panels(2 * len(found), least=3)
        drawn = []
        for number, part in enumerate(found):
            results(panels[2 * number], part)
            history = part.of(inputs.history)
            column = f"validation_{part.metric.name}"
            if column not in history:
                history[column] = None
            _learning(panels[2 * number + 1], part, history, column)
            shown = [part.models[["curve", "n", "value", "value_low", "value_high", "chance"]]]
            shown.append(history[["curve", "seed", "epoch", column]].rename(columns={column: "validation"}))
            drawn.append(pd.concat(shown).assign(workload=part.workload, metric=part.metric.name))
        footnote(figure, found, inputs, asked)
        return figure, pd.concat(drawn)


ACCURACY = Accuracy()


def parts(inputs: Inputs, study: str) -> Iterator[Part]:
    """The data sets of a study that have test results, in the study's order."""
    mine = inputs.quality[(inputs.quality["study"] == study) & (inputs.quality["chosen"] == True)]  # noqa: E712 (NaN)
    for workload, models in mine.groupby("workload", sort=False):
        metric = inputs.config.family(str(workload)).headline
        names = variants(models, inputs.config, but=("workload",))
        named = models.assign(curve=names.where(names != "", models["model"])).dropna(subset="value")
        ordered = named.sort_values(["value", "curve"], ascending=[metric.better == "down", True])
        if len(ordered):
            kept = ordered.head(style.SERIES)
            yield Part(study, str(workload), metric, kept, len(ordered) - len(kept))


def footnote(
    figure: Drawing, found: Sequence[Part], inputs: Inputs, asked: Iterable[str], note: str = ""
) -> None:
    """The note of a figure of such parts."""
    import pandas as pd

    points = pd.concat([part.models for part in found])
    points = points.merge(inputs.runs[[*POINT, "hardware", "code"]].drop_duplicates(list(POINT)))
    left = sum(part.left for part in found)
    notes = (note, f"{left} more models are in quality.csv" if left else "")
    style.footnote(figure, points, inputs, asked, ". ".join(filter(None, notes)))


def results(axes: Axes, part: Part) -> None:
    """The test metric of each model with its interval; the best is at the top."""
    models = part.models
    for height, (_, row) in enumerate(models.iterrows()):
        axes.hlines(height, row["value_low"], row["value_high"], lw=1.6, color=style.colour(height))
        style.dot(axes, row["value"], height, style.colour(height), bool(row["failed"]), ms=6)
    chance = models["chance"].mean()
    # Far below all results it would hide their differences.
    if chance == chance and (part.metric.is_share and chance > models["value_low"].min() - 0.1):
        axes.axvline(chance, color=style.SOFT, lw=1, ls=(0, (1, 2)))
        axes.annotate("guessing", (chance, 1), (2, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                      fontsize=7, va="top", color=style.SOFT)  # fmt: skip
    if not part.metric.is_share and models["value"].min() > 0:
        style.log_numbers(axes.xaxis)
    style.name_rows(axes, models["curve"])
    axes.set(title=part.workload, xlabel=f"test {style.label(part.metric)}")


def _learning(axes: Axes, part: Part, history: pd.DataFrame, column: str) -> None:
    """The seeds' validation metric by epoch, as measured; a dot is the end of a seed's training."""
    ends = []
    for number, curve in enumerate(part.models["curve"]):
        mine = history[history["curve"] == curve].dropna(subset=column).sort_values(["seed", "epoch"])
        for _, seed in mine.groupby("seed"):
            axes.plot(seed["epoch"], seed[column], lw=0.9, alpha=0.6, color=style.colour(number))
            axes.plot(seed["epoch"].iloc[-1], seed[column].iloc[-1], "o", ms=2.5, color=style.colour(number))
        if len(mine):
            ends.append((mine.groupby("seed")[column].last().median(), curve, style.colour(number)))
    if part.metric.better == "down" and len(history) and style.wide(history[column]):
        axes.set_yscale("log")
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="epoch", ylabel=f"validation {part.metric.title}")
    style.name_lines(axes, ends)
