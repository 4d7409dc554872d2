"""The input of figures: the tables of a study and its config."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from ketscale.analysis.heavy import pd
from ketscale.config import Config


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

    def only(self, studies: Collection[str], host: str = "") -> Inputs:
        """What a figure of some studies gets: their rows, and of a class of hosts only what it measured."""
        speed, quality, fits = (
            table[table["study"].isin(studies) & ((table["on"] == host) | (host == ""))]
            for table in (self.speed, self.quality, self.fits)
        )
        asked = self.runs["studies"].fillna("").map(lambda names: not {*names.split()}.isdisjoint(studies))
        runs = self.runs[asked & ((self.runs["hardware"] == host) | (host == ""))]
        known = tuple(each for each in self.config.studies if each.name in studies)
        config = replace(self.config, studies=known)
        return replace(self, config=config, runs=runs, speed=speed, quality=quality, fits=fits)
