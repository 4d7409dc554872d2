"""The input of figures: the tables of a study and its config."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from ketscale.analysis.heavy import pd
from ketscale.config import Config
from ketscale.grid import POINT


@dataclass(frozen=True)
class Inputs:
    """The tables that figures are drawn from, and the config of their studies. results: the folder of the runs' own files."""

    config: Config
    results: Path
    runs: pd.DataFrame
    speed: pd.DataFrame
    quality: pd.DataFrame
    fits: pd.DataFrame
    history: pd.DataFrame

    def only(self, study: str, host: str = "") -> Inputs:
        """What a figure of one study gets: its rows, and of a class of hosts only what it measured."""
        studies = tuple(each for each in self.config.studies if each.name == study)
        speed, quality, fits = (
            table[(table["study"] == study) & (table["on"].fillna("") == host)]
            for table in (self.speed, self.quality, self.fits)
        )
        runs = of_studies(self.runs, [study])
        runs = runs[runs["hardware"] == host] if host else runs
        config = replace(self.config, studies=studies)
        return replace(self, config=config, runs=runs, speed=speed, quality=quality, fits=fits)

    @property
    def names(self) -> list[str]:
        """The names of the studies."""
        return [study.name for study in self.config.studies]

    def seeds(self, point: pd.Series) -> list[float]:
        """The step times of a point's completed or timed-out runs that have one."""
        same = (self.runs[list(POINT)] == point[list(POINT)]).all(axis="columns")
        ended = self.runs["status"].isin(["completed", "timed_out"])
        return self.runs[same & ended]["step_s"].dropna().tolist()


def of_studies(table: pd.DataFrame, studies: Collection[str]) -> pd.DataFrame:
    """The rows of a table of runs for which some of these studies ask."""
    return table[table["studies"].fillna("").map(lambda text: not {*text.split()}.isdisjoint(studies))]
