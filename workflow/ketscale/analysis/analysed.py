"""All that the records of a results folder say, in memory: tables, answers and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale.analysis import answers, catalogue, columns, completeness, stamp, tables
from ketscale.analysis.answers import Part
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

    sources: what all of it is made from. written, tables: by their names, as they are written to files, and, but for the
    answers, as numbers and text. parts: in the order of kinds.
    """

    config: Config
    sources: stamp.Sources
    written: Mapping[str, pd.DataFrame]
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
        collected, written = tables.of(config, results, records.read(config, results))
        typed = {name: columns.TABLES[name].typed(frame, config) for name, frame in written.items()}
        # Records take much memory, and all that is read of them is in the rows.
        inputs = Inputs(config, replace(collected, records={}), **typed)
        parts = tuple(answers.given(inputs))
        lines = columns.ANSWERS.of((line for part in parts for line in part.lines), config)
        written["answers"] = columns.ANSWERS.frame(lines, config)
        return cls(config, sources, written, typed, inputs, parts)

    @property
    def complete(self) -> bool:
        """Whether every run has a record that can be used."""
        return not self.tables["completeness"]["state"].isin(completeness.FAULTS).any()

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
        made = {f"{stamp.TABLES}/{name}.csv": columns.csv(frame) for name, frame in self.written.items()}
        made[catalogue.CONFIG_FILE] = f"{self.config.text}\n".encode()
        for name, files in self.figures.items():
            made |= {f"{stamp.FIGURES}/{name}.{ending}": content for ending, content in files.items()}
        return made
