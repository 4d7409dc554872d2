"""What adaptation buys: the headline metric after numbers of adaptation steps, against each sample's own optimum.

A model that does not adapt is trained on the test's own samples, and so is the optimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ketscale.analysis import metrics
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds.accuracy import Part, footnote, parts
from ketscale.analysis.kinds.finding import Finding, value
from ketscale.analysis.kinds.quality import Quality
from ketscale.config import Config, Family
from ketscale.grid import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


class Adaptation(Quality):
    """Models that adapt to each sample by steps, compared after several numbers of them."""

    name = "adaptation"

    title = "What adaptation buys"
    caption = (
        "The headline metric on test data after numbers of adaptation steps: geometric means over seeds, with 95 % "
        "intervals. Dashed: a model without adaptation, optimised for each sample of the test by itself."
    )

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require protocols with epochs, families that measure adaptation, and a model that adapts for each workload."""
        yield from super().check(study, config)
        adapted: dict[str, bool] = {}
        for run in study.runs:
            adapted[run.workload] = adapted.get(run.workload, False) or self.eligible(config, run.model)
        for workload, found in adapted.items():
            if not config.family(workload).course:
                yield (
                    f"adaptation compares a metric after numbers of adaptation steps, and models of {workload} have none; "
                    "leave it out"
                )
            elif not found:
                yield f"adaptation needs a model that adapts, and none is trained on {workload}; add one"

    def eligible(self, config: Config, model: str) -> bool:
        """Models that adapt; the others are trained on the test's own samples."""
        return config.models[model][1].adapts

    def more(self, found: Finding) -> dict[str, str]:
        """How much of it is adaptation."""
        after, first = next(iter(found.settings.family.course.items()))
        start = found.means[first.name]
        return {} if start is None else {f"after {after} steps": value(start, first)}

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """The headline metric by number of steps: a panel for each study and workload."""
        import pandas as pd

        asked = inputs.asked(self.name)
        found = [part for name in asked for part in parts(inputs, name)]
        if not found:
            return None
        figure, panels = style.panels(len(found))
        drawn = []
        for axes, part in zip(panels, found, strict=True):
            family = inputs.config.family(part.workload)
            table = _course(part, family, inputs)
            _panel(axes, table, family)
            axes.set(
                title=part.workload, xlabel="adaptation steps", ylabel=f"test {style.label(family.headline)}"
            )
            drawn.append(table.assign(study=part.study, workload=part.workload))
        footnote(figure, found, inputs, asked)
        return figure, pd.concat(drawn)


ADAPTATION = Adaptation()


def _course(part: Part, family: Family, inputs: Inputs) -> pd.DataFrame:
    """The metric of each curve after numbers of steps, over seeds; `after` is empty for a model that does not adapt."""
    import pandas as pd

    rows = []
    for _, point in part.models.sort_values("curve").iterrows():
        runs = [row for row in inputs.rows(point) if row["status"] == "completed"]
        adapts = inputs.config.models[point["model"]][1].adapts
        for metric in family.course.values() if adapts else (family.headline,):
            values = [row[f"test_{metric.name}"] for row in runs if row[f"test_{metric.name}"] is not None]
            if values:
                found = metrics.over_seeds(values)
                ends = {"value": found.value, "value_low": found.low, "value_high": found.high, "n": found.n}
                rows.append({"curve": point["curve"], "after": metric.after, **ends})
    return pd.DataFrame(rows, columns=["curve", "after", "value", "value_low", "value_high", "n"])


def _panel(axes: Axes, table: pd.DataFrame, family: Family) -> None:
    """The curves of models that adapt with their intervals, and the levels of those that do not."""
    steps, ends = list(family.course), []
    for number, (curve, found) in enumerate(table.groupby("curve")):
        colour = style.colour(number)
        for level in found.loc[found["after"].isna(), "value"]:
            axes.axhline(level, lw=1.6, ls="--", color=colour)
        course = found.dropna(subset="after")
        at = [steps.index(after) for after in course["after"]]
        axes.plot(at, course["value"], lw=1.6, marker="o", ms=4, color=colour)
        axes.vlines(
            at,
            course["value_low"].fillna(course["value"]),
            course["value_high"].fillna(course["value"]),
            color=colour,
        )
        ends.append((found["value"].iloc[-1], str(curve), colour))
    if table["value"].min() > 0:
        axes.set_yscale("log")
    axes.set_xticks(range(len(steps)), [str(count) for count in steps])
    axes.set_xlim(-0.3, len(steps) - 0.7)
    style.name_lines(axes, ends)
