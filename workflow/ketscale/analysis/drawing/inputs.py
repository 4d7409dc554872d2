"""The input of figures and answers: the tables of a study and its config."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.comparison import Compared
from ketscale.analysis.heavy import pd
from ketscale.analysis.points import Group, failed
from ketscale.analysis.wording import listed
from ketscale.config import Config
from ketscale.grid import POINT
from ketscale.words import counted


@dataclass(frozen=True)
class Inputs:
    """The tables that figures are drawn from and answers computed from, and the config of their studies.

    collected: the runs by point, with what compares their times.
    """

    config: Config
    collected: Collected
    runs: pd.DataFrame
    scaling: pd.DataFrame
    laws: pd.DataFrame
    quality: pd.DataFrame
    trials: pd.DataFrame
    spans: pd.DataFrame
    history: pd.DataFrame
    curves: pd.DataFrame
    completeness: pd.DataFrame
    parity: pd.DataFrame

    def only(self, study: str, host: str = "") -> Inputs:
        """What asks about one study gets: its rows, and of a class of hosts only what it measured."""
        studies = tuple(each for each in self.config.studies if each.name == study)
        found = replace(self, config=replace(self.config, studies=studies), collected=self.collected.on(host))
        if not host:
            return found
        runs, scaling = (
            table[table[name] == host] for table, name in ((self.runs, "hardware"), (self.scaling, "on"))
        )
        return replace(found, runs=runs, scaling=scaling)

    def points(self, *studies: str) -> pd.DataFrame:
        """The points of some studies that have a step time; there may be none."""
        return self.scaling[self.scaling["study"].isin(studies) & self.scaling["step_s"].notna()]

    def rows(self, point: Mapping[Hashable, Any] | pd.Series) -> Group:
        """The runs of a point, as rows of runs.csv with None where there is no value."""
        return self.collected.points.get(tuple(point[name] for name in POINT), [])

    def compared(self, point: pd.Series, other: pd.Series) -> Compared:
        """How many times as fast a point is as another, or why that is not known."""
        return self.collected.times.speedup(self.rows(point), self.rows(other))

    def points_of(self, kind: str) -> pd.DataFrame:
        """The same of all studies of a kind."""
        return self.points(*self.asked(kind))

    def asked(self, *kinds: str) -> list[str]:
        """The names of the studies of these kinds, with or without a finished run."""
        return [study.name for study in self.config.studies if study.kind in kinds]

    def states(self, studies: Collection[str]) -> str:
        """How many runs of some studies have not completed, such as 'Of 12 runs, 2 missing'; '' if all have."""
        states = of_studies(self.completeness, studies)["state"]
        counts = states.value_counts().drop("completed", errors="ignore").sort_index()
        told = listed(f"{count} {str(state).replace('_', ' ')}" for state, count in counts.items())
        return f"Of {counted(len(states), 'run')}, {told}" if told else ""

    def seeds(self, point: pd.Series) -> list[float]:
        """The step times of a point's completed or timed-out runs that have one."""
        return [row["step_s"] for row in self.rows(point) if row["step_s"] and not failed(row)]


def of_studies(table: pd.DataFrame, studies: Collection[str]) -> pd.DataFrame:
    """The rows of a table of runs for which some of these studies ask."""
    return table[table["studies"].fillna("").map(lambda text: not {*text.split()}.isdisjoint(studies))]
