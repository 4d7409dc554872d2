"""All that the records of a results folder say, in memory: tables, answers and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale.analysis import answers, catalogue, columns, completeness, stamp, tables
from ketscale.analysis.answers import Part
from ketscale.analysis.columns import Filled
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

    complete: whether every run has a record that can be used. sources: what all of it is made from. filled, tables: by
    their names, as they are written to files, and as values. parts: in the order of kinds.
    """

    config: Config
    complete: bool
    sources: stamp.Sources
    filled: Mapping[str, Filled]
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
        collected, filled = tables.of(config, results, records.read(config, results))
        frames = {name: found.frame() for name, found in filled.items()}
        # Records take much memory, and all that is read of them is in the rows.
        inputs = Inputs.of_tables(replace(collected, records={}), frames)
        parts = tuple(answers.given(inputs))
        filled["answers"] = Filled.of(columns.ANSWERS, config, answers.table(parts))
        frames["answers"] = filled["answers"].frame()
        complete = not frames["completeness"]["state"].isin(completeness.FAULTS).any()
        return cls(config, complete, sources, filled, frames, inputs, parts)

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

    def files(self) -> dict[str, bytes]:
        """The contents of the files of tables and figures, by their paths below the results folder."""
        made = {f"{stamp.TABLES}/{name}.csv": found.csv() for name, found in self.filled.items()}
        made[catalogue.CONFIG_FILE] = f"{self.config.text}\n".encode()
        for name, files in self.figures.items():
            made |= {f"{stamp.FIGURES}/{name}.{ending}": content for ending, content in files.items()}
        return made
