"""What claims are judged by: the runs that the config plans, their rows of runs.csv, and their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.points import Row, mostly_failed, point_of, usable
from ketscale.config import Config
from ketscale.grid import Run

# Axes of runs, sizes by name, or layout, with the value that a run must have.
Filter = Mapping[str, Any]
# Measured by the test, not by the clock, so that other work on the host changes nothing.
UNTIMED = "test_"
# Why nothing was measured, if the config does not ask for it.
UNPLANNED = "not in the study"
# Why it is not known which runs are meant.
AMBIGUOUS = "several points of the study"


def since(collected: Collected, rule: datetime) -> Collected:
    """What was not measured before a rule had its words."""
    records = collected.records
    old = {run for run, record in records.items() if record.started < rule}
    groups = collected.points.items()
    new = {key: [row for row in group if Run.of(row) not in old] for key, group in groups}
    why = f"measured before its rule was written ({rule:%Y-%m-%d %H:%M})"
    return replace(collected, points=new, why={**collected.why, **dict.fromkeys(old, why)})


def rows_of(collected: Collected, runs: Collection[Run]) -> list[Row]:
    """The rows of runs.csv of these runs."""
    points = dict.fromkeys(map(point_of, runs))
    groups = (collected.points.get(point, ()) for point in points)
    return [row for group in groups for row in group if Run.of(row) in runs]


def planned(config: Config, studies: Collection[str], wanted: Filter) -> list[Run]:
    """The runs of these studies that pass a filter, in the studies' order."""
    named = (study for study in config.studies if study.name in studies)
    return list(dict.fromkeys(run for study in named for run in study.runs if _passes(config, run, wanted)))


def values(config: Config, studies: Collection[str], wanted: Filter, name: str) -> list[Any]:
    """The values of an axis that these studies plan among the runs that pass a filter, in order."""
    found = {_axis(config, run, name) for run in planned(config, studies, wanted)}
    return sorted(found, key=lambda value: (isinstance(value, str), value))


def _passes(config: Config, run: Run, wanted: Filter) -> bool:
    return all(_axis(config, run, name) == value for name, value in wanted.items())


def _axis(config: Config, run: Run, name: str) -> Any:
    """A run's value of an axis, of its layout or of a size; None if its family has no such size."""
    return getattr(run, name) if hasattr(run, name) else config.sizes(run).get(name)


def measured(
    collected: Collected, runs: Collection[Run], quantity: str, own_cores: bool
) -> tuple[dict[int, Row], str]:
    """The rows of the usable ones of the runs of one point, by seed; or none of them and the reason.

    Args:
        runs: those planned.
        quantity: what is read; all but results of a test need a quiet host.
        own_cores: leave out runs of which two threads shared a core.
    """
    if not runs:
        return {}, UNPLANNED
    if len({point_of(run) for run in runs}) > 1:
        first, *_, last = runs
        return {}, f"{AMBIGUOUS}, such as {first.name} and {last.name}"
    rows = rows_of(collected, runs)
    if not rows:
        return {}, next(
            (collected.why[run] for run in runs if run in collected.why), "measured on another host"
        )
    if quantity.startswith(UNTIMED):
        found, flag = [row for row in rows if row["status"] == "completed"], ""
    else:
        found, flag = usable(rows)
    if not found or flag:
        return {}, flag or f"no usable run ({', '.join(sorted({_fault(row) for row in rows}))})"
    if mostly_failed(rows):
        return {}, "most seeds failed, and the rest are a choice"
    kept = [row for row in found if not own_cores or row["shared_cores"] is False]
    if not kept:
        shared = "shared" if found[0]["shared_cores"] else "perhaps shared"
        return {}, f"no run with cores of its own ({shared})"
    return {row["seed"]: row for row in kept}, ""


def _fault(row: Row) -> str:
    """Why a run's time does not count."""
    return "no steady step" if row["status"] == "completed" else str(row["status"])
