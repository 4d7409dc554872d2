"""Accuracy against the classical control: differences paired by seed, with an interval over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale import grid

Row = Mapping[str, Any]

# A control above this test accuracy leaves a circuit no room to be better: the data set is too easy.
CEILING = 0.95
POINT = ("workload", "model", "qubits", "layers", "batch", "simulator", "place", "protocol")
COLUMNS = (
    "study", *POINT, "n", "failed", "accuracy", "accuracy_low", "accuracy_high", "chance", "auc", "f1", "loss",
    "epochs", "pooled", "pooled_low", "pooled_high", "trials", "control", "difference", "difference_low", "difference_high", "pairs", "verdict",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its 95 % interval (None below two pairs), in the values' unit."""

    mean: float
    low: float | None
    high: float | None
    n: int


def paired_difference(values: Mapping[int, float], control: Mapping[int, float]) -> Difference | None:
    """mean(a_s - b_s) +- t_{0.975, n-1} sd / sqrt(n) over the seeds s that both have (Student 1908)."""
    differences = [values[seed] - control[seed] for seed in sorted(set(values) & set(control))]
    if not differences:
        return None
    mean, n = statistics.fmean(differences), len(differences)
    if n < 2:
        return Difference(mean, None, None, n)
    from scipy.stats import t

    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(differences) / math.sqrt(n)
    return Difference(mean, mean - half, mean + half, n)


def verdict(difference: Difference | None, control: float | None) -> str:
    """What the interval allows to say about model and control; `control` is the control's mean accuracy."""
    if difference is None or control is None:
        return ""
    if difference.low is None or difference.high is None:
        return "one seed cannot tell"
    if difference.low > 0:
        return "better than the control"
    if difference.high < 0:
        return "worse than the control"
    return "too easy to tell apart" if control >= CEILING else "cannot be told apart"


def table(config: Mapping[str, Any], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows of accuracy.csv: every point of every accuracy study beside its workload's classical control."""
    by_run = {tuple(row[name] for name in (*POINT, "seed")): row for row in rows}
    made = []
    for study in grid.studies(config):
        if study.kind != "accuracy":
            continue
        points: dict[tuple[Any, ...], list[Row]] = {}
        for run in study.runs:
            row = by_run.get(tuple(getattr(run, name) for name in (*POINT, "seed")))
            if row is not None:
                points.setdefault(tuple(row[name] for name in POINT), []).append(row)
        made += [_row(study.name, list(group), list(points.values())) for group in points.values()]
    return made


def _row(study: str, group: Sequence[Row], groups: Sequence[Sequence[Row]]) -> dict[str, Any]:
    first = group[0]
    accuracies = _accuracies(group)
    control = next(
        (other for other in groups if other[0]["simulator"] == "none" != first["simulator"]
         and all(other[0][name] == first[name] for name in ("workload", "batch", "protocol"))),
        None,
    )  # fmt: skip
    against = _accuracies(control) if control else {}
    difference = paired_difference(accuracies, against)
    return {
        "study": study,
        **{name: first[name] for name in POINT},
        "n": len(accuracies),
        "failed": sum(row["status"] != "completed" for row in group),
        "accuracy": _mean(accuracies.values()),
        "accuracy_low": min(accuracies.values(), default=None),
        "accuracy_high": max(accuracies.values(), default=None),
        **{name: _mean(_finished(group, f"test_{name}")) for name in ("chance", "auc", "f1", "loss")},
        "epochs": _mean(_finished(group, "epochs")),
        **_pooled(group),
        "control": control[0]["model"] if control else "",
        "difference": difference and difference.mean,
        "difference_low": difference and difference.low,
        "difference_high": difference and difference.high,
        "pairs": difference.n if difference else 0,
        "verdict": verdict(difference, _mean(against.values())),
    }


def _pooled(group: Iterable[Row]) -> dict[str, Any]:
    """Accuracy over all trials where each was the test once (a run left out at a time), with its 95 % interval.

    Of several runs of one fold the first counts. The interval is Wilson's (J. Am. Stat. Assoc. 22, 209); it is
    empty unless every fold is there.
    """
    folds: dict[int, Row] = {}
    for row in group:
        if row["status"] == "completed" and row["fold"] is not None and row["test_samples"]:
            folds.setdefault(row["fold"], row)
    some = next(iter(folds.values()), None)
    if some is None or len(folds) < some["folds"]:
        return dict.fromkeys(("pooled", "pooled_low", "pooled_high", "trials"))
    from scipy.stats import binomtest

    trials = sum(row["test_samples"] for row in folds.values())
    right = round(sum(row["test_accuracy"] * row["test_samples"] for row in folds.values()))
    interval = binomtest(right, trials).proportion_ci(method="wilson")
    return {
        "pooled": right / trials,
        "pooled_low": interval.low,
        "pooled_high": interval.high,
        "trials": trials,
    }


def _accuracies(group: Iterable[Row]) -> dict[int, float]:
    """Test accuracy (0 to 1) of each seed that completed."""
    return {
        row["seed"]: row["test_accuracy"]
        for row in group
        if row["status"] == "completed" and row["test_accuracy"] is not None
    }


def _finished(group: Iterable[Row], name: str) -> list[float]:
    return [row[name] for row in group if row["status"] == "completed" and row[name] is not None]


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return statistics.fmean(listed) if listed else None
