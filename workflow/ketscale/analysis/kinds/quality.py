"""What kinds of studies of trained models share: the rows of quality.csv, one for each point compared with its control.

Models are compared by their family's headline metric, in the direction that the family calls better.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ketscale.analysis.collected import Collected
from ketscale.analysis.intervals import paired_difference, wilson
from ketscale.analysis.kinds import selection
from ketscale.analysis.kinds.kind import Answer, Kind
from ketscale.analysis.points import Group, Row, metrics, point_of, size_axes
from ketscale.config import Config, Metric
from ketscale.config.family import LOSS
from ketscale.grid import POINT, Study

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.analysis.drawing.inputs import Inputs

# If the control gets more than this share right, a model has no room to be better: the data set is too easy.
CEILING = 0.95


def columns(config: Config) -> tuple[str, ...]:
    """The columns of quality.csv: the headline metric as `value`, and every other metric by its name."""
    return (
        "study", *POINT, "family", *size_axes(config), "n", "failed", "metric", "value", "value_low", "value_high", "chance", "shared",
        *_others(config), "epochs", "pooled", "pooled_low", "pooled_high", "pooled_count",
        "control", "difference", "difference_low", "difference_high", "pairs", "verdict",
    )  # fmt: skip


class Quality(Kind):
    """A kind of study that compares models trained by epochs."""

    varies = "model"
    table = "quality"
    # What a model and its control have in common, besides the study.
    alike: ClassVar[tuple[str, ...]] = ("workload", "batch", "protocol")

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require protocols with epochs."""
        for run in study.runs:
            if not config.protocols[run.protocol].by_epochs:
                yield (
                    f"{self.name} needs validation and test, but protocol {run.protocol} has steps; "
                    "give it a protocol with epochs"
                )

    def rows(self, study: Study, collected: Collected) -> Iterator[Mapping[str, Any]]:
        """Every point of the study that has a record, compared with its control."""
        keys = dict.fromkeys(point_of(run) for run in study.runs)
        groups = [collected.points[key] for key in keys if key in collected.points]
        for group in groups:
            yield _row(
                study, group, _control(group[0], groups, self.alike, collected.config), collected.config
            )

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """For each workload, the configuration that is the best on validation data, beside its control on test data."""
        points = inputs.quality[inputs.quality["study"] == study.name]
        eligible = points[points["model"].map(lambda name: self.eligible(inputs.config, name)).astype(bool)]
        return selection.answer(eligible, inputs, CEILING, lambda point: self.more(point, points, inputs))

    def eligible(self, config: Config, model: str) -> bool:
        """Whether a model may be chosen."""
        return True

    def more(self, point: pd.Series, points: pd.DataFrame, inputs: Inputs) -> str:
        """What else this kind says of a chosen point, of the study's points."""
        return ""


def _others(config: Config) -> list[str]:
    """The metrics that some family has besides its headline metric, and the loss."""
    families = {config.family(run.workload).name for study in config.studies for run in study.runs}
    found = {metric.name for name in families for metric in config.families[name].metrics[1:]}
    return [name for name in metrics(config) if name in found or name == LOSS]


def _row(study: Study, group: Group, control: Group | None, config: Config) -> dict[str, Any]:
    first = group[0]
    metric = config.family(first["workload"]).headline
    values = _values(group, metric)
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
        "shared": max(_finished(group, "shared"), default=None),
        **{name: _mean(_finished(group, f"test_{name}")) for name in _others(config)},
        "epochs": _mean(_finished(group, "epochs")),
        **(_pooled(group, metric) if metric.is_share else {}),
        "control": control[0]["model"] if control else "",
        "difference": difference and difference.value,
        "difference_low": difference and difference.low,
        "difference_high": difference and difference.high,
        "pairs": difference.n if difference else 0,
        "verdict": selection.verdict(difference, metric, statistics.fmean(against.values()), CEILING)
        if difference
        else "",
    }


def _control(row: Row, groups: Iterable[Group], shared: Iterable[str], config: Config) -> Group | None:
    """The runs of the model's control in the same study, or else those of any classical model."""
    model = config.models[row["model"]][1]
    alike = [
        group
        for group in groups
        if group[0]["model"] != row["model"] and all(group[0][name] == row[name] for name in shared)
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
