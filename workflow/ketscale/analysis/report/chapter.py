"""What the page says of one results folder, from its tables and figures."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from ketscale.analysis import catalogue
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.kinds import Figure
from ketscale.analysis.report import answered, cells, provenance
from ketscale.analysis.report.answered import Answered
from ketscale.config import Config
from ketscale.grid import Run

if TYPE_CHECKING:
    import pandas as pd

# Sections of figures that are below no answer. The others are in the section of accuracy.
SCALING, TIME = ("map",), ("strategies", "spans")


@dataclass(frozen=True)
class Picture:
    """A figure of the page: its SVG as a data URI."""

    name: str
    title: str
    caption: str
    uri: str


@dataclass(frozen=True)
class Chapter:
    """A results folder on the page.

    key: its name there; '' on a page of one folder. pictures: its figures by name; `scaling`, `time` and `trained` are
    the names of those that are below no answer, by section. counts: how many runs are in each state. absent: the runs
    that have not completed. made_from: the digest of its figures, and so of its tables.
    """

    key: str
    config: Config
    tables: dict[str, pd.DataFrame]
    place: cells.Place
    studies: Sequence[Answered]
    pictures: dict[str, Picture]
    scaling: Sequence[str]
    time: Sequence[str]
    trained: Sequence[str]
    counts: Sequence[tuple[str, int]]
    absent: Sequence[Mapping[Hashable, str]]
    warnings: Sequence[str]
    provenance: dict[str, list[str]]
    packages: Sequence[str]
    bibtex: str
    commit: str
    config_text: str
    config_hash: str
    made_from: str

    @classmethod
    def of(cls, analysed: Analysed, key: str = "", folder: str = "", cited: str = "ketscale") -> Chapter:
        """The chapter of a results folder.

        Args:
            analysed: what its records say.
            key: its name on the page.
            folder: the folder seen from the page, with '/' at its end; '' if the page is in it.
            cited: the key of its BibTeX entry.
        """
        config, tables, figures = analysed.config, dict(analysed.tables), analysed.figures
        drawn = [figure for figure in catalogue.figures_of(config) if figure.name in figures]
        runs = tables["runs"]
        pictures = {figure.name: _picture(figure, figures[figure.name]["svg"]) for figure in drawn}
        studies = answered.studies(tables["answers"], drawn, config)
        below = {study.figure for study in studies}
        names = frozenset(Run.of(row).name for row in cells.rows(runs))
        states = tables["completeness"][tables["completeness"]["run"] != "*"]
        absent = states[states["state"] != "completed"][["run", "state", "why"]].astype(object).fillna("")
        text, digest = provenance.config_text(config)
        return cls(
            key,
            config,
            tables,
            cells.Place(f"{key}-" if key else "", quote(folder), names),
            studies,
            pictures,
            [name for name in pictures if name in SCALING],
            [name for name in pictures if name in TIME],
            [name for name in pictures if name not in {*below, *SCALING, *TIME}],
            counts(states["state"]),
            absent.to_dict("records"),
            tables["completeness"][tables["completeness"]["run"] == "*"]["why"].tolist(),
            provenance.of(runs),
            provenance.packages(runs),
            provenance.bibtex(runs, cited),
            provenance.commit(runs),
            text,
            digest,
            analysed.digest,
        )


def counts(values: Iterable[str]) -> list[tuple[str, int]]:
    """Each value and how often it occurs, in order of the values."""
    listed = list(values)
    return [(value, listed.count(value)) for value in sorted(set(listed))]


def _picture(figure: Figure, svg: bytes) -> Picture:
    data = base64.b64encode(svg).decode()
    return Picture(figure.name, figure.title, figure.caption, f"data:image/svg+xml;base64,{data}")
