"""What adaptation buys: the headline metric after numbers of adaptation steps, against each sample's own optimum.

A model that does not adapt is trained on the test's own samples, and so is the optimum.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketscale.analysis import metrics
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.kinds.accuracy import chosen
from ketscale.analysis.kinds.finding import Finding, value
from ketscale.analysis.kinds.quality import Quality
from ketscale.config import Config
from ketscale.grid import Study

# What is said of each model.
OF = ["study", "workload", "line", "hollow", "hardware", "code"]


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
        """The headline metric by number of steps: a panel for each data set. A model that does not adapt is a level."""
        models = chosen(inputs, self.name)
        if models.empty:
            return None
        table = _course(models, inputs)

        def finish(axes: Axes, part: pd.DataFrame) -> None:
            family = inputs.config.family(str(part["workload"].iloc[0]))
            for number, (_, line) in enumerate(part.groupby("line", sort=True)):
                if line["after"].isna().all():
                    axes.axhline(line["value"].iloc[0], lw=1.6, ls="--", color=style.colour(number))
            if part["value"].min() > 0:
                axes.set_yscale("log")
            axes.set_xticks(range(len(family.course)), [str(steps) for steps in family.course])
            axes.set_xlim(-0.3, len(family.course) - 0.7)
            axes.set(xlabel="adaptation steps", ylabel=f"test {style.label(family.headline)}")

        return plots.lines(table, inputs, "at", "value", ("value_low", "value_high"), finish, "")


ADAPTATION = Adaptation()


def _course(models: pd.DataFrame, inputs: Inputs) -> pd.DataFrame:
    """The metric of each model over seeds `after` numbers of steps, the number `at` of all; `after` is empty for one that does not adapt."""
    rows = []
    for _, point in models.iterrows():
        runs = [row for row in inputs.rows(point) if row["status"] == "completed"]
        family = inputs.config.family(point["workload"])
        adapts = inputs.config.models[point["model"]][1].adapts
        # A level is named at its end.
        course = enumerate(family.course.values()) if adapts else [(len(family.course) - 1, family.headline)]
        for at, metric in course:
            values = [row[f"test_{metric.name}"] for row in runs if row[f"test_{metric.name}"] is not None]
            if values:
                found = metrics.over_seeds(values)
                ends = {"value": found.value, "value_low": found.low, "value_high": found.high, "n": found.n}
                rows.append({**point[OF], "after": metric.after, "at": at, **ends})
    return pd.DataFrame(rows).astype({"value_low": float, "value_high": float})
