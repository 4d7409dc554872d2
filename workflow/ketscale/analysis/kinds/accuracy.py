"""Quality of trained models compared with their classical controls: rows of quality.csv, and learning curves.

Models are compared by their family's headline metric, in the direction that the family calls better.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import Difference, paired_difference, wilson
from ketscale.analysis.kinds.kind import Figure, Kind
from ketscale.analysis.points import Collected, Group, Row, metrics, point_of, size_axes, size_words, variants
from ketscale.config import Config, Metric
from ketscale.config.family import LOSS
from ketscale.grid import POINT, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# If the control gets more than this share right, a model has no room to be better: the data set is too easy.
CEILING = 0.95


def columns(config: Config) -> tuple[str, ...]:
    """The columns of quality.csv: the headline metric as `value`, and every other metric by its name."""
    return (
        "study", *POINT, "family", *size_axes(config), "n", "failed", "metric", "value", "value_low", "value_high", "chance",
        *_others(config), "epochs", "pooled", "pooled_low", "pooled_high", "pooled_count",
        "control", "difference", "difference_low", "difference_high", "pairs", "verdict",
    )  # fmt: skip


class Accuracy(Kind):
    """Models that are trained by epochs, each compared with its control."""

    name = "accuracy"
    varies = "model"
    table = "quality"
    history = True

    def __init__(self) -> None:
        caption = (
            "Loss and headline metric on validation data by epoch (mean and range over seeds), and the headline "
            "metric on test data with the best weights of each seed, for models and their classical controls."
        )
        self.figure = Figure("learning", "Learning curves and test results", caption, (self.name,), self.draw)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require protocols with epochs."""
        for run in study.runs:
            if not config.protocols[run.protocol].by_epochs:
                yield (
                    f"accuracy needs validation and test, but protocol {run.protocol} has steps; "
                    "give it a protocol with epochs"
                )

    def rows(self, study: Study, collected: Collected) -> Iterator[Mapping[str, Any]]:
        """Every point of the study that has a record, compared with its control."""
        keys = dict.fromkeys(point_of(run) for run in study.runs)
        groups = [collected.points[key] for key in keys if key in collected.points]
        for group in groups:
            yield _row(study, group, groups, collected.config)

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
            panels[0].set_title(name)
            for number, curve in enumerate(curves):
                panels[0].plot([], [], lw=2, marker=style.marker(number), label=curve, **style.line(number))
            panels[2].legend(
                *panels[0].get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1.02, 0.5)
            )
            shown = ["epoch", "step", f"validation_{LOSS}", f"validation_{metric.name}"]
            test = tests[["curve", "seed", f"test_{metric.name}"]]
            both = [history[["curve", "seed", *(c for c in shown if c in history)]], test]
            drawn.append(pd.concat(both).assign(study=name, metric=metric.name))
        points = inputs.quality.merge(inputs.runs[[*POINT, "hardware", "code"]].drop_duplicates(list(POINT)))
        note = (
            "Lines: mean (a seed that has stopped keeps its last value); bands: range over seeds; test: each seed's "
            "best weights on unseen data, and their mean"
        )
        style.footnote(figure, points, inputs, asked, note)
        return figure, pd.concat(drawn).sort_values(["study", "metric", "curve", "seed", "epoch"])


ACCURACY = Accuracy()


def verdict(difference: Difference | None, control: float | None, metric: Metric) -> str:
    """The verdict that the interval allows about model and control; `control` is the control's mean."""
    if difference is None or control is None:
        return ""
    if difference.low is None or difference.high is None:
        return "one seed cannot tell"
    gains = sorted(
        (1 if metric.better == "up" else -1) * bound for bound in (difference.low, difference.high)
    )
    if gains[0] > 0:
        return "better than the control"
    if gains[1] < 0:
        return "worse than the control"
    too_easy = metric.is_share and control >= CEILING
    return "too easy to tell apart" if too_easy else "cannot be told apart"


def _others(config: Config) -> list[str]:
    """The metrics that some family has besides its headline metric, and the loss."""
    families = {config.family(run.workload).name for study in config.studies for run in study.runs}
    found = {metric.name for name in families for metric in config.families[name].metrics[1:]}
    return [name for name in metrics(config) if name in found or name == LOSS]


def _row(study: Study, group: Group, groups: Sequence[Group], config: Config) -> dict[str, Any]:
    first = group[0]
    metric = config.family(first["workload"]).headline
    values, control = _values(group, metric), _control(first, groups, config)
    against = _values(control, metric) if control else {}
    difference = paired_difference(values, against)
    return {
        "study": study.name,
        **{name: first[name] for name in (*POINT, "family", *size_axes(config))},
        "n": len(values),
        "failed": sum(row["status"] != "completed" for row in group),
        "metric": metric.name,
        "value": _mean(values.values()),
        "value_low": min(values.values(), default=None),
        "value_high": max(values.values(), default=None),
        "chance": _mean(_finished(group, "test_chance")),
        **{name: _mean(_finished(group, f"test_{name}")) for name in _others(config)},
        "epochs": _mean(_finished(group, "epochs")),
        **(_pooled(group, metric) if metric.is_share else {}),
        "control": control[0]["model"] if control else "",
        "difference": difference and difference.mean,
        "difference_low": difference and difference.low,
        "difference_high": difference and difference.high,
        "pairs": difference.n if difference else 0,
        "verdict": verdict(difference, _mean(against.values()), metric),
    }


def _control(row: Row, groups: Iterable[Group], config: Config) -> Group | None:
    """The runs of the model's control in the same study, or else those of any classical model."""
    model = config.models[row["model"]][1]
    alike = [
        group
        for group in groups
        if group[0]["model"] != row["model"]
        and all(group[0][name] == row[name] for name in ("workload", "batch", "protocol"))
    ]
    if model.control is not None:
        named = (group for group in alike if config.models[group[0]["model"]][0] == model.control)
        declared = next(named, None)
        if declared is not None:
            return declared
    if model.classical:
        return None
    return next((group for group in alike if config.models[group[0]["model"]][1].classical), None)


def _pooled(group: Group, metric: Metric) -> dict[str, Any]:
    """The share over all samples, each tested once (one fold left out at a time), with its 95 % interval.

    If a fold has several runs, the first counts. Empty unless there is a run of every fold.
    """
    folds: dict[int, Row] = {}
    for row in group:
        if row["status"] == "completed" and row["fold"] is not None and row["test_samples"]:
            folds.setdefault(row["fold"], row)
    some = next(iter(folds.values()), None)
    if some is None or len(folds) < some["folds"]:
        return {}
    count = sum(row["test_samples"] for row in folds.values())
    right = round(sum(row[f"test_{metric.name}"] * row["test_samples"] for row in folds.values()))
    low, high = wilson(right, count)
    return {"pooled": right / count, "pooled_low": low, "pooled_high": high, "pooled_count": count}


def _values(group: Group, metric: Metric) -> dict[int, float]:
    """The test metric of each completed seed."""
    column = f"test_{metric.name}"
    return {
        row["seed"]: row[column] for row in group if row["status"] == "completed" and row[column] is not None
    }


def _finished(group: Group, name: str) -> list[float]:
    return [row[name] for row in group if row["status"] == "completed" and row.get(name) is not None]


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return statistics.fmean(listed) if listed else None


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
        named = points[list(POINT)].assign(curve=_curves(points, inputs))
        history = inputs.history.merge(named, on=list(POINT))
        tests = inputs.runs[inputs.runs["status"] == "completed"].merge(named, on=list(POINT))
        spec = config.families[str(family)]
        tests = tests[tests[f"test_{spec.headline.name}"].notna()]
        if len(history) and len(tests):
            title = study if mine["family"].nunique() == 1 else f"{study}, {spec.title}"
            found.append((title, history, tests, spec.headline, spec.loss))
    return found


def _curves(points: pd.DataFrame, inputs: Inputs) -> list[str]:
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
        for value in values:
            style.dot(axes, number, value, colour, False, marker=style.marker(number), ms=7, alpha=0.8)
        if len(values):
            axes.plot([number - 0.25, number + 0.25], [values.mean()] * 2, lw=2.5, color=colour)
    if metric.better == "down" and style.wide(tests[column]):
        axes.set_yscale("log")
    axes.set(ylabel=f"test {style.label(metric)}", xlim=(-0.6, len(curves) - 0.4))
    axes.set_xticks([])
    axes.grid(False, axis="x")
