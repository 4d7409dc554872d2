"""The answer of studies of trained models: the best on validation data, and what it is worth on test data.

The configuration is chosen on validation data alone. Choosing it on test data would make its test result too good.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ketscale.analysis import verdicts
from ketscale.analysis.intervals import Estimate, mean
from ketscale.analysis.kinds.kind import Answer
from ketscale.analysis.points import size_axes
from ketscale.analysis.wording import data, distinct, interval, sentence, subject
from ketscale.config import Config, Metric
from ketscale.grid import POINT

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.analysis.drawing.inputs import Inputs

BETTER, WORSE, EQUAL = "better than the control", "worse than the control", "cannot be told apart"
EASY, FEW, ALONE = "too easy to tell apart", "fewer than three seeds cannot tell", "no control"
CLAUSES = {
    BETTER: "it is better than its control",
    WORSE: "it is worse than its control",
    EQUAL: "the seeds cannot tell the two apart",
    EASY: "the data are too easy to tell the two apart",
    FEW: "fewer than three seeds cannot tell the two apart",
}


def verdict(difference: Estimate, metric: Metric, control: float, ceiling: float) -> str:
    """What the interval of the difference from the control, which reaches `control`, says of a model.

    ceiling: the share from which on the control leaves no room to be better.
    """
    if difference.low is None or difference.high is None:
        return FEW
    low, high = sorted(
        (1 if metric.better == "up" else -1) * end for end in (difference.low, difference.high)
    )
    if low > 0:
        return BETTER
    if high < 0:
        return WORSE
    return EASY if metric.is_share and control >= ceiling else EQUAL


def chosen(points: pd.DataFrame, inputs: Inputs) -> pd.Series | None:
    """Of the points that have a control (or of all, if none has), the best by its mean on validation data.

    A point with failed seeds is chosen only if all have some: the mean of survivors is too good.
    """
    metric = inputs.config.families[points.iloc[0]["family"]].headline
    compared = points[points["pairs"] > 0]
    best: tuple[tuple[bool, float], pd.Series] | None = None
    for _, point in (compared if len(compared) else points).iterrows():
        found = mean(_results(inputs, point, f"validation_{metric.name}"))
        if found is None:
            continue
        rank = bool(point["failed"]), -found.value if metric.better == "up" else found.value
        if best is None or rank < best[0]:
            best = rank, point
    return best and best[1]


def answer(
    points: pd.DataFrame, inputs: Inputs, ceiling: float, more: Callable[[pd.Series], str] = lambda point: ""
) -> Answer:
    """For each workload (and size, if it is part of the task) the chosen configuration beside its control, on test data.

    points: of one study, from quality.csv. more: what else there is to say of a chosen point.
    """
    tested = points[points["value"].notna()]
    # Where the batch follows from the size, the size is what is asked for, and not how it is done.
    tied = tested["family"].map(lambda name: inputs.config.families[name].work is not None).astype(bool)
    tasks = tested.assign(task=tested["size"].where(tied, "")).groupby(["workload", "task"], sort=False)
    picked = [(chosen(group, inputs), group) for _, group in tasks]
    found = [(point, group) for point, group in picked if point is not None]
    if not found:
        return Answer("No model has been trained and tested yet.", verdicts.OPEN)
    compared = (point for point, _ in found if point["pairs"])
    count = verdicts.decided(verdicts.estimate(point, "difference", "pairs") for point in compared)
    clauses = [_clause(point, group, inputs, count, ceiling, more(point)) for point, group in found]
    lead = next((clause for clause in clauses if clause.verdict != ALONE), clauses[0])
    text = sentence("by validation data, the best", [clause.text for clause in clauses])
    return replace(lead, text=text + verdicts.about_together(count))


def _clause(
    point: pd.Series, points: pd.DataFrame, inputs: Inputs, comparisons: int, ceiling: float, more: str
) -> Answer:
    metric = inputs.config.families[point["family"]].headline
    named = _named(point, points, inputs.config)
    tested = mean(_results(inputs, point, f"test_{metric.name}"))
    assert tested is not None  # the point has a value
    reached = f"{_reached(tested.value, metric)} ({'; '.join(_certain(point, tested, metric))})"
    text = f"on {data(point['workload'], inputs.config)}, {named} reaches {reached}{more}"
    if point.get("shared", 0) > 0:  # NaN without a split
        text += (
            f", although {point['shared']:.0f} samples of validation and test are not new: they equal, overlap or share a "
            "group with samples of training (or of validation, if they are of test)"
        )
    if point["failed"]:
        text += f", of the seeds that did not fail ({point['n']:.0f} of {point['n'] + point['failed']:.0f})"
    if not point["pairs"]:
        text += ", with nothing to compare it with yet"
        return Answer.by(text, ALONE, f"test {metric.title} of {named}", tested)
    found = verdicts.estimate(point, "difference", "pairs")
    found = verdicts.together(found, comparisons, of_ratio=False)
    judged = verdict(found, metric, point["value"] - point["difference"], ceiling)
    between = interval(found, lambda value: difference(value, metric, unit=False))
    text += f", {difference(found.value, metric)} from {point['control']}, its control ({between}): {CLAUSES[judged]}"
    return Answer.by(text, judged, f"test {metric.title} of {named} less that of {point['control']}", found)


def _named(point: pd.Series, points: pd.DataFrame, config: Config) -> str:
    """A model with its size, and whatever else its points vary."""
    mine = points[points["model"] == point["model"]]
    others = distinct(mine, config, ("workload", "model", *size_axes(config)))
    other = others[(mine[list(POINT)] == point[list(POINT)]).all(axis=1)].iloc[0]
    sized = subject(mine[mine["size"] == point["size"]], config, ("workload", "batch", "simulator"))
    return f"{sized} {other}".rstrip()


def _results(inputs: Inputs, point: pd.Series, column: str) -> list[float]:
    rows = [row for row in inputs.rows(point) if row["status"] == "completed"]
    return [row[column] for row in rows if row[column] is not None]


def _certain(point: pd.Series, tested: Estimate, metric: Metric) -> list[str]:
    """The intervals of a result, over seeds and over the samples of all folds if each was the test once; and chance."""
    told = [interval(tested, lambda end: value(end, metric))]
    low, high, chance = tested.low, tested.high, point["chance"]
    if not math.isnan(point.get("pooled", math.nan)):
        low, high = point["pooled_low"], point["pooled_high"]
        ends = f"95 % interval {value(low, metric)} to {value(high, metric)}, {point['pooled_count']:.0f} samples"
        told.append(f"pooled over all folds {value(point['pooled'], metric)}, {ends}")
    if not math.isnan(chance):
        better = low is None or high is None or (low > chance if metric.better == "up" else high < chance)
        told.append(f"{'chance is' if better else 'not surely better than chance,'} {value(chance, metric)}")
    return told


def _reached(found: float, metric: Metric) -> str:
    """'96.1 % test accuracy', or 'a test infidelity of 0.0012'."""
    if metric.is_share:
        return f"{value(found, metric)} test {metric.title}"
    return f"a test {metric.title} of {value(found, metric)}"


def value(found: float, metric: Metric) -> str:
    """A value of a metric with its unit."""
    return f"{100 * found:.1f} %" if metric.is_share else f"{found:.3g} {metric.unit}".rstrip()


def difference(found: float, metric: Metric, unit: bool = True) -> str:
    """A difference of two values of a metric, of shares in points."""
    if metric.is_share:
        return f"{100 * found:+.1f}" + (" points" if unit else "")
    return f"{found:+.3g}" + (f" {metric.unit}" if unit and metric.unit else "")
