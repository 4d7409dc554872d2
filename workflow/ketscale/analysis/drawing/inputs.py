"""The input of figures and answers: the tables of a study and its config."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.comparison import Compared
from ketscale.analysis.points import Group, failed
from ketscale.config import Config
from ketscale.grid import POINT

if TYPE_CHECKING:
    import pandas as pd


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
    spans: pd.DataFrame
    history: pd.DataFrame
    curves: pd.DataFrame
    completeness: pd.DataFrame
    parity: pd.DataFrame

    @classmethod
    def of_tables(cls, collected: Collected, tables: Mapping[str, pd.DataFrame]) -> Inputs:
        """The inputs that are tables, by name."""
        names = ("runs", "scaling", "laws", "quality", "spans", "history", "curves", "completeness", "parity")
        return cls(collected.config, collected, **{name: tables[name] for name in names})

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

    def seeds(self, point: pd.Series) -> list[float]:
        """The step times of a point's completed or timed-out runs that have one."""
        return [row["step_s"] for row in self.rows(point) if row["step_s"] and not failed(row)]
