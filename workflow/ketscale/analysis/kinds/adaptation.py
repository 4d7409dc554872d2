"""What adaptation buys: the headline metric after numbers of adaptation steps, against each sample's own optimum.

A model that does not adapt is trained on the test's own samples, and so is the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import selection
from ketscale.analysis.kinds.kind import Figure
from ketscale.analysis.kinds.quality import Quality
from ketscale.analysis.points import variants
from ketscale.config import Config, Family, Metric
from ketscale.grid import POINT, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

NOTE = (
    "Lines: mean over seeds; bands: range over seeds; dashed: a model without adaptation, optimised for each sample of "
    "the test by itself. Below: means over seeds, of the model named there"
)


class Adaptation(Quality):
    """Models that adapt to each sample by steps, compared after several numbers of them."""

    name = "adaptation"
    # Models that adapt and those that do not are trained in ways of their own.
    alike = ("workload",)

    def __init__(self) -> None:
        caption = (
            "The headline metric on test data after numbers of adaptation steps, for every model that adapts, and what "
            "each test sample's own optimum reaches. Below each panel: how much the samples of its workload differ."
        )
        self.figure = Figure(self.name, "What adaptation buys", caption, (self.name,), self.draw)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require protocols with epochs, families that measure adaptation, and a model that adapts for each workload."""
        yield from super().check(study, config)
        adapted: dict[str, bool] = {}
        for run in study.runs:
            model = config.models[run.model][1]
            adapted[run.workload] = adapted.get(run.workload, False) or model.adapts
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

    def more(self, point: pd.Series, points: pd.DataFrame, inputs: Inputs) -> str:
        """How much of it is adaptation, and what is left to the optimum of each sample."""
        config = inputs.config
        family = config.families[point["family"]]
        told = ""
        after, first = next(iter(family.course.items()))
        if not math.isnan(point[first.name]):
            told = (
                f", from {selection.value(point[first.name], family.headline)} after {after} adaptation steps"
            )
        mine = (points["workload"] == point["workload"]) & points["value"].notna()
        fixed = points[mine & ~points["model"].map(lambda name: config.models[name][1].adapts)]
        if fixed.empty:
            return told
        by = "value" if family.headline.better == "down" else "less"
        optimum = fixed.assign(less=-fixed["value"]).sort_values(by).iloc[0]
        reached = selection.value(optimum["value"], family.headline)
        return f"{told} (each sample's own optimum, {optimum['model']}, {reached})"

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """The headline metric by number of steps: a row of panels per study and family, one for each workload."""
        import matplotlib.pyplot as plt
        import pandas as pd
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        asked = inputs.asked(self.name)
        found = [part for name in asked for part in _parts(inputs, name)]
        if not found:
            return style.empty(inputs, asked)
        widest = max(table["workload"].nunique() for _, _, table in found)
        figure, grid = plt.subplots(
            len(found),
            widest,
            figsize=(2.5 + 3.6 * widest, 4.6 * len(found)),
            layout=ConstrainedLayoutEngine(wspace=0.06),  # between the texts below the panels
            sharey="row",
            squeeze=False,
        )
        for panels, (name, family, table) in zip(grid, found, strict=True):
            looks = _looks(table)
            workloads = list(dict.fromkeys(table["workload"]))
            for axes, workload in zip(panels, workloads, strict=False):
                _panel(axes, table[table["workload"] == workload], family, looks)
                axes.set_title(f"{name}: {workload}" if axes is panels[0] else workload)
            for axes in panels[len(workloads) :]:
                axes.set_axis_off()
            panels[0].set_ylabel(f"test {style.label(family.headline)}")
            style.legend(panels[len(workloads) - 1])
        points = inputs.quality.merge(inputs.runs[[*POINT, "hardware", "code"]].drop_duplicates(list(POINT)))
        points = points[points["study"].isin(asked)]
        style.footnote(figure, points, inputs, asked, NOTE)
        return figure, pd.concat([table for _, _, table in found])


ADAPTATION = Adaptation()


def _parts(inputs: Inputs, study: str) -> list[tuple[str, Family, pd.DataFrame]]:
    """A study's curves by family, with its name in the figure; empty without results."""
    config = inputs.config
    mine = inputs.quality[inputs.quality["study"] == study]
    found = []
    for name, points in mine.groupby("family", sort=False):
        family = config.families[str(name)]
        named = points[list(POINT)].assign(curve=_curves(points, config))
        # The study's order of points, and so of workloads.
        runs = named.merge(inputs.runs[inputs.runs["status"] == "completed"], on=list(POINT))
        if len(runs):
            title = study if mine["family"].nunique() == 1 else f"{study}, {family.title}"
            found.append((title, family, _summary(runs, family, config).assign(study=study)))
    return found


def _curves(points: pd.DataFrame, config: Config) -> pd.Series[str]:
    """The name of each point's curve, the same in all panels: its model, and what else that model's points vary."""
    import pandas as pd

    groups = [group for _, group in points.groupby("model")]
    others = pd.concat([variants(group, config, but=("workload", "model")) for group in groups])
    return points["model"].where(others == "", points["model"] + ", " + others)


def _summary(runs: pd.DataFrame, family: Family, config: Config) -> pd.DataFrame:
    """The drawn metrics of each curve: mean, low and high over seeds; `after` is the number of steps, if it has one."""
    import pandas as pd

    rows = []
    for (workload, curve), group in runs.groupby(["workload", "curve"], sort=False):
        adapts = config.models[group["model"].iloc[0]][1].adapts
        measured = family.course.values() if adapts else [family.headline]
        for metric in (*measured, *_describing(family)):
            values = group[f"test_{metric.name}"].dropna()
            if values.empty:  # undefined for these samples, as how far a single one is from the others
                continue
            ends = {"value": values.mean(), "value_low": values.min(), "value_high": values.max()}
            shared = {"workload": workload, "curve": curve, "adapts": adapts, "n": len(values)}
            rows.append({**shared, "metric": metric.name, "after": metric.after, **ends})
    return pd.DataFrame(rows)


def _describing(family: Family) -> list[Metric]:
    """The metrics that say how much samples differ."""
    return [metric for metric in family.metrics if metric.better is None]


def _looks(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """How each curve of a study is drawn, in all panels: dashed and without markers if its model does not adapt."""
    adapts = table.drop_duplicates("curve").set_index("curve")["adapts"].sort_index()
    return {
        str(curve): {"lw": 1.8, **style.line(number), **({"marker": style.marker(number), "ms": 5} if course else {"ls": "--"})}
        for number, (curve, course) in enumerate(adapts.items())
    }  # fmt: skip


def _panel(axes: Axes, table: pd.DataFrame, family: Family, looks: Mapping[str, dict[str, Any]]) -> None:
    """One workload: the curves of models that adapt, the levels of those that do not, and how much samples differ."""
    metric, steps = family.headline, list(family.course)
    for curve, look in looks.items():
        chosen = table[table["curve"] == curve]
        course, level = chosen[chosen["after"].notna()], chosen[chosen["metric"] == metric.name]
        at = [steps.index(after) for after in course["after"]]
        axes.plot(at, course["value"], label=curve, **look)
        axes.fill_between(at, course["value_low"], course["value_high"], fc=look["color"], alpha=0.15, lw=0)
        for value in level["value"]:
            axes.axhline(value, **look)
    if metric.better == "down":
        axes.set_yscale("log")
    axes.set_xticks(range(len(steps)), [str(count) for count in steps])
    axes.set(xlabel="adaptation steps", xlim=(-0.3, len(steps) - 0.7))
    _describe(axes, table, family)


def _describe(axes: Axes, table: pd.DataFrame, family: Family) -> None:
    """Below the panel: the optimum's headline metric, and what describes the samples; else of the first curve."""
    curve = table.sort_values("adapts", kind="stable")["curve"].iloc[0]
    values = table[table["curve"] == curve].set_index("metric")["value"].to_dict()
    shown = [metric for metric in (family.headline, *_describing(family)) if metric.name in values]
    below: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "top",
        "fontsize": 8.5,
    }
    names = [f"{family.samples}, with {curve}", *(style.label(metric) for metric in shown)]
    numbers = ["", *(f"{values[metric.name]:.3g}" for metric in shown)]
    axes.annotate("\n".join(names), (0, 0), (0, -40), ha="left", **below)
    axes.annotate("\n".join(numbers), (1, 0), (0, -40), ha="right", **below)
