"""What claims are judged by: the runs that the config plans, their rows of runs.csv, and their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.points import Row, point_of, usable
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure.form import Record

# Columns of runs, by name, with the value or the list of values that a run must have.
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
    """

    config: Config
    rows: Mapping[Run, Row]
    records: Mapping[Run, Record]
    why: Mapping[Run, str]

    @classmethod
    def of(cls, collected: Collected, why: Mapping[Run, str]) -> Evidence:
        """The collected runs of a config."""
        rows = {Run.of(row): row for group in collected.points.values() for row in group}
        return cls(collected.config, rows, collected.records, why)

    def on(self, hardware: str | None) -> Evidence:
        """The same, with the rows of one kind of host."""
        return replace(self, rows={run: row for run, row in self.rows.items() if row["hardware"] == hardware})

    def planned(self, studies: Collection[str], wanted: Filter) -> list[Run]:
        """The runs of these studies that pass a filter, in the studies' order."""
        named = (study for study in self.config.studies if study.name in studies)
        return list(dict.fromkeys(run for study in named for run in study.runs if self.passes(run, wanted)))

    def passes(self, run: Run, wanted: Filter) -> bool:
        """Whether a run has the values of a filter."""
        return all(
            self.axis(run, name) in (value if isinstance(value, list) else [value])
            for name, value in wanted.items()
        )

    def axis(self, run: Run, name: str) -> Any:
        """A run's value of an axis, of its layout or of a size; None if its family has no such size."""
        return getattr(run, name) if hasattr(run, name) else self.config.sizes(run).get(name)

    def measured(
        self, studies: Collection[str], wanted: Filter, demanded: Filter, quantity: str
    ) -> tuple[dict[int, Run], str]:
        """The usable runs of the one point that a filter selects, by seed; or none of them and the reason.

        Args:
            studies: the names of the studies that plan the runs.
            wanted: selects the point.
            demanded: what the rows must say of the machine, such as `shared_cores`.
            quantity: what is read; all but results of a test need a quiet host.
        """
        runs = self.planned(studies, wanted)
        if not runs:
            return {}, UNPLANNED
        if len({point_of(run) for run in runs}) > 1:
            return {}, f"{AMBIGUOUS}, such as {runs[0].name} and {runs[-1].name}"
        rows = [self.rows[run] for run in runs if run in self.rows]
        if not rows:
            return {}, next((self.why[run] for run in runs if run in self.why), "measured on another host")
        if quantity.startswith(UNTIMED):
            found, flag = [row for row in rows if row["status"] == "completed"], ""
        else:
            found, flag = usable(rows)
        if not found or flag:
            return {}, flag or f"no usable run ({', '.join(sorted({_fault(row) for row in rows}))})"
        kept = [row for row in found if all(row[name] == value for name, value in demanded.items())]
        if not kept:
            said = ", ".join(f"{name} is {found[0][name]}" for name in demanded)
            return {}, f"no run as demanded ({said})"
        return {row["seed"]: Run.of(row) for row in kept}, ""


def _fault(row: Row) -> str:
    """Why a run's time does not count."""
    return "no steady step" if row["status"] == "completed" else str(row["status"])
