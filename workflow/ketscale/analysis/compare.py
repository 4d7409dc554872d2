"""Compares two results folders: which points became faster, slower, better or worse beyond noise."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ketscale.analysis import columns, pairs, simultaneous
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.analysis.pairs import Pair
from ketscale.analysis.points import point_of
from ketscale.config import Metric
from ketscale.errors import UserError
from ketscale.grid import POINT
from ketscale.measure.form import Record

STEP = columns.STEP.name
# The ratios of all but the first have no verdict.
MEASURED = (columns.STEP, columns.FIRST_STEP, columns.HOST_MEMORY, columns.DEVICE_MEMORY)
COLUMNS = (
    *POINT, "hardware", "points", "measure", "change_is", "seeds", "a", "b", "change", "low", "high", "verdict",
)  # fmt: skip
# Verdicts.
FASTER, SLOWER, BETTER, WORSE = "faster", "slower", "better", "worse"
OTHER_LOSSES, UNCLEAR, UNDECIDED = "other losses", "no clear change", "undecided"
REGRESSIONS = (SLOWER, WORSE, OTHER_LOSSES)


@dataclass(frozen=True)
class Subject:
    """A point and a measure with a value of A and one of B for each seed, or several points taken together.

    values: ratios are compared by their logarithms. metric: None for a ratio. same: whether all pairs of runs have the
    same first losses. points: how many points it is of; then there is a value for each of them instead of each seed.
    """

    at: Mapping[str, Any]
    measure: str
    values: Sequence[tuple[float, float]]
    metric: Metric | None = None
    same: bool = True
    points: int = 1

    @property
    def judged(self) -> bool:
        """Whether it gets a verdict."""
        return self.metric is not None or self.measure == STEP

    @property
    def changes(self) -> list[float]:
        """Of each seed: the difference B - A, or the logarithm of the ratio B / A."""
        return [b - a if self.metric else math.log(b / a) for a, b in self.values]


def compare(a: Path, b: Path, threshold: float) -> dict[str, Any]:
    """The comparison of two results folders as plain values; `rows` has the columns `COLUMNS`, largest changes first.

    Runs are paired if their axes (seed included), settings, data and hardware are the same. Intervals of all verdicts
    hold at once (`simultaneous.means`). Points with fewer than three seeds have none; three or more of them of one
    workload, model and hardware are also taken together, each as one value.

    threshold: a step time has changed if its whole interval is above this ratio, or below its inverse.

    Raises:
        UserError: nothing can be compared, or the threshold is not a number from 1 on.
    """
    if not (math.isfinite(threshold) and threshold >= 1):
        raise UserError(f"--threshold: {threshold:g} should be a ratio from 1 on, such as 1.05")
    if a.resolve() == b.resolve():
        raise UserError(f"{b}: this is the same folder as {a}; name two")
    folders = pairs.read(a), pairs.read(b)
    found, failed, left_out = pairs.pair(*folders)
    not_timed = Counter(pair.untimed for pair in found if pair.untimed)
    subjects = _subjects(found)
    if not failed and not any(subject.judged for subject in subjects):
        counts = ", ".join(f"{count} {why}" for why, count in (left_out + not_timed).items())
        raise UserError(f"{a} (A) and {b} (B) have no run whose records can be compared: {counts}")
    subjects += _together(subjects)
    tests = sum(subject.judged and len(subject.values) >= FEWEST for subject in subjects)
    rows = [row for group in _groups(subjects) for row in _rows(group, max(1, tests), threshold)]
    times = [
        row["change"]
        for row in rows
        if row["measure"] == STEP and row["points"] == 1 and row["verdict"] != OTHER_LOSSES
    ]
    return {
        "threshold": threshold,
        "level": LEVEL,
        "intervals": tests,
        **{name: folder.about() for name, folder in zip("ab", folders, strict=True)},
        "pairs": len(found),
        "left_out": dict(left_out),
        "not_timed": dict(not_timed),
        "failed": [run.name for run in failed],
        "overall": statistics.geometric_mean(times) if times else None,
        "rows": sorted(rows, key=_by_effect),
    }


def regressed(result: Mapping[str, Any]) -> bool:
    """Whether something is slower or worse, has other losses, or completes no longer."""
    return bool(result["failed"]) or any(row["verdict"] in REGRESSIONS for row in result["rows"])


def _subjects(found: Iterable[Pair]) -> list[Subject]:
    points: dict[tuple[Any, ...], list[Pair]] = {}
    for pair in found:
        points.setdefault((*point_of(pair.run), pair.hardware), []).append(pair)
    subjects = []
    for key, group in points.items():
        at = dict(zip((*POINT, "hardware"), key, strict=True))
        same, metric = all(pair.same_losses for pair in group), group[0].settings.family.headline
        timed = [pair for pair in group if not pair.untimed]
        for column in MEASURED:
            values = [pair.values(column) for pair in timed]
            subjects.append(Subject(at, column.name, [(a, b) for a, b in values if a and b], same=same))
        if metric.better:
            values = [(_quality(pair.first, metric), _quality(pair.second, metric)) for pair in group]
            known = [(a, b) for a, b in values if a is not None and b is not None]
            subjects.append(Subject(at, metric.name, known, metric))
    return [subject for subject in subjects if subject.values]


def _quality(record: Record, metric: Metric) -> float | None:
    value = record.quality.test.get(metric.name) if record.quality else None
    return value if isinstance(value, (int, float)) else None


def _together(subjects: Iterable[Subject]) -> list[Subject]:
    """The judged points of few seeds by workload, model and hardware, if they are three or more: one value a point."""
    groups: dict[tuple[Any, ...], list[Subject]] = {}
    for subject in subjects:
        if subject.judged and subject.same and len(subject.values) < FEWEST:
            key = tuple(subject.at[name] for name in ("workload", "model", "hardware"))
            groups.setdefault((*key, subject.measure), []).append(subject)
    return [
        Subject(
            {"workload": workload, "model": model, "hardware": hardware},
            measure,
            [_middle(subject) for subject in group],
            group[0].metric,
            points=len(group),
        )
        for (workload, model, hardware, measure), group in groups.items()
        if len(group) >= FEWEST
    ]


def _middle(subject: Subject) -> tuple[float, float]:
    """The means of A and B over seeds; geometric ones for a ratio."""
    mean = statistics.fmean if subject.metric else statistics.geometric_mean
    a, b = (mean(values) for values in zip(*subject.values, strict=True))
    return a, b


def _groups(subjects: Iterable[Subject]) -> Iterable[list[Subject]]:
    """Subjects whose noise is alike: of one measure, and either points or points taken together."""
    groups: dict[tuple[Any, ...], list[Subject]] = {}
    for subject in subjects:
        groups.setdefault((subject.measure, subject.metric, subject.points > 1), []).append(subject)
    return groups.values()


def _rows(group: Sequence[Subject], tests: int, threshold: float) -> Iterable[dict[str, Any]]:
    estimates = simultaneous.means([subject.changes for subject in group], tests)
    for subject, estimate in zip(group, estimates, strict=True):
        change = estimate if subject.metric else _exponential(estimate)
        a, b = _middle(subject)
        yield {
            **dict.fromkeys(COLUMNS),
            **subject.at,
            "points": subject.points,
            "measure": subject.measure,
            "change_is": "difference" if subject.metric else "ratio",
            "seeds": len(subject.values) if subject.points == 1 else None,
            "a": a,
            "b": b,
            "change": change.value,
            "low": change.low,
            "high": change.high,
            "verdict": _verdict(subject, change, threshold) if subject.judged else None,
        }


def _exponential(estimate: Estimate) -> Estimate:
    low, high = (None if end is None else math.exp(end) for end in (estimate.low, estimate.high))
    return Estimate(math.exp(estimate.value), low, high, estimate.n)


def _verdict(subject: Subject, change: Estimate, threshold: float) -> str:
    if not subject.same:
        return OTHER_LOSSES
    if change.low is None or change.high is None:
        return UNDECIDED
    if subject.metric is None:
        return SLOWER if change.low > threshold else FASTER if change.high < 1 / threshold else UNCLEAR
    # Counts may differ by the same in every seed by chance, so a spread of 0 says nothing of the noise.
    if change.low == change.high != 0:
        return UNDECIDED
    up, down = (BETTER, WORSE) if subject.metric.better == "up" else (WORSE, BETTER)
    return up if change.low > 0 else down if change.high < 0 else UNCLEAR


def _by_effect(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sort key: step times first, then the metrics; each by the size of its change, largest first."""
    ratio = row["change_is"] == "ratio"
    size = abs(math.log(row["change"]) if ratio else row["change"])
    return not (row["verdict"] and ratio), not row["verdict"], row["measure"], row["points"] > 1, -size
