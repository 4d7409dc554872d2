"""All that the records of a results folder say, in memory: tables, answers and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale.analysis import answers, catalogue, columns, completeness, stamp, tables
from ketscale.analysis.answers import Part
from ketscale.analysis.columns import Column, Row
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import kinds
from ketscale.config import Config
from ketscale.jobs import records

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Analysed:
    """What the records of a results folder say.

    complete: whether every run has a record that can be used. sources: what all of it is made from. tables: by their
    names, with the columns of their files. parts: in the config's order.
    """

    config: Config
    results: Path
    complete: bool
    sources: stamp.Sources
    rows: Mapping[str, Sequence[Row]]
    tables: Mapping[str, pd.DataFrame]
    inputs: Inputs
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, config: Config, results: Path) -> Analysed:
        """Read and check the config's records below `results`.

        Raises:
            UserError: a run is missing, stale or refused, and the config is not `partial`.
        """
        sources = stamp.Sources.of(config, results)
        rows = tables.of(config, results, records.read(config, results))
        frames = {
            name: columns.frame(found, columns.TABLES[name].columns(config, found))
            for name, found in rows.items()
        }
        inputs = Inputs.from_tables(config, frames)
        parts = tuple(answers.given(inputs))
        rows["answers"] = list(answers.table(parts))
        frames["answers"] = columns.frame(rows["answers"], columns.ANSWERS.columns(config))
        complete = not frames["completeness"]["state"].isin(completeness.FAULTS).any()
        return cls(config, results, complete, sources, rows, frames, inputs, parts)

    @property
    def digest(self) -> str:
        """The digest of what all of it is made from."""
        return self.sources.digest

    @cached_property
    def figures(self) -> dict[str, dict[str, bytes]]:
        """The files of each figure that was drawn, by its name and their endings."""
        return self.drawn()

    def drawn(self, paper: bool = False) -> dict[str, dict[str, bytes]]:
        """The same, or those of the style for papers."""
        style.theme()
        known, found = kinds(self.config.families), dict[str, dict[str, bytes]]()
        for part in self.parts:
            if figure := known[part.study.kind].figure:
                inputs = self.inputs.only(part.study.name, part.host)
                found[part.figure] = style.files(figure.draw, inputs, paper)
        for figure in catalogue.overviews(self.config):
            found[figure.name] = style.files(figure.draw, self.inputs, paper)
        return {name: files for name, files in found.items() if files}

    def columns(self, name: str) -> tuple[Column, ...]:
        """The columns of a table."""
        return columns.TABLES[name].columns(self.config, self.rows[name])

    def csv(self, name: str) -> bytes:
        """The content of a table's file."""
        return columns.csv(self.rows[name], self.columns(name))

    def files(self) -> dict[str, bytes]:
        """The contents of the files of tables and figures, by their paths below the results folder."""
        made = {f"{stamp.TABLES}/{name}.csv": self.csv(name) for name in columns.TABLES}
        made[catalogue.CONFIG_FILE] = f"{self.config.text}\n".encode()
        for name, files in self.figures.items():
            made |= {f"{stamp.FIGURES}/{name}.{ending}": content for ending, content in files.items()}
        return made
