"""What claims are judged by: the runs that the config plans, their rows of runs.csv, and their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.points import Row, point_of, usable
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure.form import Record

# Axes of runs, sizes by name, or layout, with the value that a run must have.
Filter = Mapping[str, Any]
# Measured by the test, not by the clock, so that other work on the host changes nothing.
UNTIMED = "test_"
# Why nothing was measured, if the config does not ask for it.
UNPLANNED = "not in the study"
# Why it is not known which runs are meant.
AMBIGUOUS = "several points of the study"


@dataclass(frozen=True)
class Evidence:
    """Runs and what is known of them.

    rows: those of runs.csv. records: those of the rows. why: the state of every run without a row, with the reason.
    least: the least spread that is believed, of `comparison.Times`.
    """

    config: Config
    rows: Mapping[Run, Row]
    records: Mapping[Run, Record]
    why: Mapping[Run, str]
    least: float = 0.0

    @classmethod
    def of(cls, collected: Collected, why: Mapping[Run, str]) -> Evidence:
        """The collected runs of a config."""
        rows = {Run.of(row): row for group in collected.points.values() for row in group}
        return cls(collected.config, rows, collected.records, why, collected.times.least)

    def on(self, host: str) -> Evidence:
        """The same, with the rows of one class of hosts; with all for ''."""
        own = {run: row for run, row in self.rows.items() if row["hardware"] == host}
        return replace(self, rows=own if host else self.rows)

    def since(self, rule: datetime) -> Evidence:
        """The same, without what was measured before a rule had its words."""
        old = {run for run in self.rows if self.records[run].started < rule}
        why = f"measured before its rule was written ({rule:%Y-%m-%d %H:%M})"
        rows = {run: row for run, row in self.rows.items() if run not in old}
        return replace(self, rows=rows, why={**self.why, **dict.fromkeys(old, why)})

    def planned(self, studies: Collection[str], wanted: Filter) -> list[Run]:
        """The runs of these studies that pass a filter, in the studies' order."""
        named = (study for study in self.config.studies if study.name in studies)
        return list(dict.fromkeys(run for study in named for run in study.runs if self._passes(run, wanted)))

    def values(self, studies: Collection[str], wanted: Filter, name: str) -> list[Any]:
        """The values of an axis that these studies plan among the runs that pass a filter, in order."""
        found = {self._axis(run, name) for run in self.planned(studies, wanted)}
        return sorted(found, key=lambda value: (isinstance(value, str), value))

    def _passes(self, run: Run, wanted: Filter) -> bool:
        return all(self._axis(run, name) == value for name, value in wanted.items())

    def _axis(self, run: Run, name: str) -> Any:
        """A run's value of an axis, of its layout or of a size; None if its family has no such size."""
        return getattr(run, name) if hasattr(run, name) else self.config.sizes(run).get(name)

    def measured(self, runs: Collection[Run], quantity: str, own_cores: bool) -> tuple[dict[int, Run], str]:
        """The usable ones of the runs of one point, by seed; or none of them and the reason.

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
        rows = [self.rows[run] for run in runs if run in self.rows]
        if not rows:
            return {}, next((self.why[run] for run in runs if run in self.why), "measured on another host")
        if quantity.startswith(UNTIMED):
            found, flag = [row for row in rows if row["status"] == "completed"], ""
        else:
            found, flag = usable(rows)
        if not found or flag:
            return {}, flag or f"no usable run ({', '.join(sorted({_fault(row) for row in rows}))})"
        if 2 * sum(row["status"] not in ("completed", "timed_out") for row in rows) > len(rows):
            return {}, "most seeds failed, and the rest are a choice"
        kept = [row for row in found if not own_cores or row["shared_cores"] is False]
        if not kept:
            shared = "shared" if found[0]["shared_cores"] else "perhaps shared"
            return {}, f"no run with cores of its own ({shared})"
        return {row["seed"]: Run.of(row) for row in kept}, ""


def _fault(row: Row) -> str:
    """Why a run's time does not count."""
    return "no steady step" if row["status"] == "completed" else str(row["status"])
