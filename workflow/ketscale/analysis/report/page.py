"""The page of a results folder.

It has a chapter for each study, figures of several, runs, and where the numbers are from.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from ketscale.analysis import catalogue, columns, verdicts
from ketscale.analysis.analysed import Analysed, Part
from ketscale.analysis.completeness import FAULTS
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds import kinds
from ketscale.analysis.kinds.kind import Figure
from ketscale.analysis.report import cells, provenance
from ketscale.analysis.report.cells import LONG, NUMBER, RECORD, Cell, Head, Room, Table
from ketscale.analysis.wording import listed, shown
from ketscale.grid import RECORD as RECORD_FILE
from ketscale.grid import RUNS, Run
from ketscale.words import counted

PAGE = "page.html.j2"
# What figures, and rows beyond the first ones of each table, may take of a page, which stays below 5 MB with them. Others
# are only in their files, to which the page leads.
FIGURES_BYTES, ROWS_BYTES = 2_800_000, 1_200_000
WIDE, NARROW = "svg", "narrow.svg"
# The files of a figure that the page leads to.
FILES = ("svg", "png", "csv")


@dataclass(frozen=True)
class Picture:
    """A figure: its wide and its narrow drawing as data, or as paths if the page has no room; its files by format."""

    title: str
    caption: str
    wide: str
    narrow: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Chapter:
    """A study on the page, on one class of hosts: the id of its section, and its answer."""

    id: str
    part: Part
    table: Table
    picture: Picture | None


@dataclass(frozen=True)
class Folder:
    """A results folder on the page. files: its tables, by name."""

    analysed: Analysed
    chapters: Sequence[Chapter]
    overviews: Sequence[Picture]
    runs: Table
    files: Mapping[str, str]

    @classmethod
    def of(cls, analysed: Analysed, records: bool) -> Folder:
        """What the page says of a folder; see `rendered`."""
        config, known = analysed.config, kinds(analysed.config.families)
        figures, rows = Room(FIGURES_BYTES), Room(ROWS_BYTES)

        def picture(name: str, of: Figure) -> Picture:
            paths = {form: f"figures/{quote(name)}.{form}" for form in (*FILES, NARROW)}
            wide, narrow = (
                _source(analysed.figures[name][form], paths[form], figures) for form in (WIDE, NARROW)
            )
            return Picture(of.title, of.caption, wide, narrow, {form: paths[form] for form in FILES})

        def chapter(part: Part) -> Chapter:
            # A study on several classes of hosts has a chapter for each.
            name = f"study-{part.figure.replace('@1', '').replace('@', '-')}"
            table = cells.told(f"{name}-points", part.answer.rows, "tables/answers.csv", rows)
            figure = known[part.study.kind].figure
            drawn = figure and part.figure in analysed.figures
            return Chapter(name, part, table, picture(part.figure, figure) if figure and drawn else None)

        chapters = [chapter(part) for part in analysed.parts]
        overviews = [each for each in catalogue.overviews(config) if each.name in analysed.figures]
        return cls(
            analysed,
            chapters,
            [picture(each.name, each) for each in overviews],
            _runs(analysed, records, rows),
            {name: f"tables/{name}.csv" for name, frame in analysed.written.items() if len(frame)},
        )

    @property
    def state(self) -> str:
        """How many runs ended how, for example '69 runs: 66 completed and 3 timed out'."""
        states = _states(self.analysed)["state"]
        counts = [f"{count} {state.replace('_', ' ')}" for state, count in sorted(Counter(states).items())]
        return f"{counted(len(states), 'run')}: {listed(counts)}" if counts else "no runs"

    @property
    def warnings(self) -> list[str]:
        """What is to be said of all runs."""
        states = self.analysed.tables["completeness"]
        return [str(why) for why in states[states["run"] == "*"]["why"]]

    @property
    def verdicts(self) -> set[str]:
        """The words that occur."""
        answers = [chapter.part.answer for chapter in self.chapters]
        points = (row.verdict for answer in answers for row in answer.rows)
        return {*points, *(answer.verdict for answer in answers)}


def rendered(analysed: Analysed, records: bool = True) -> bytes:
    """The page of a results folder. records: whether the records are where the page can lead to them."""
    folder = Folder.of(analysed, records)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["slug"] = slug
    environment.filters["said"] = cells.said
    text = environment.get_template(PAGE).render(
        title=analysed.config.title,
        folder=folder,
        runs=analysed.tables["runs"],
        provenance=provenance,
        counted=counted,
        meanings={word: meaning for word, meaning in verdicts.MEANINGS.items() if word in folder.verdicts},
        made_from=analysed.sources.digest,
    )
    return text.encode()


def slug(text: str) -> str:
    """A text as an id of the page."""
    return re.sub(r"\W+", "-", text).strip("-")


def _source(svg: bytes, path: str, room: Room) -> str:
    data = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return data if room.takes(data) else path


def _states(analysed: Analysed) -> pd.DataFrame:
    states = analysed.tables["completeness"]
    return states[states["run"] != "*"]


def _runs(analysed: Analysed, records: bool, room: Room) -> Table:
    """Every run of the studies: its record, its state, what it measured; those without a record first."""
    numbers = [column for column in columns.RUNS.columns(analysed.config) if column.shown]
    run = Head("run", RECORD, f"{RUNS}/{{}}/{RECORD_FILE}")
    heads = [
        run,
        Head("state"),
        *(Head(column.title, NUMBER) for column in numbers),
        Head("why", LONG),
        Head("studies"),
    ]
    measured = {Run.of(row).name: row for row in _rows(analysed.tables["runs"])}
    found: list[list[Cell]] = []
    for state in _rows(_states(analysed)):
        named = str(state["run"]).split(f"{RUNS}/", 1)[-1].removesuffix(f"/{RECORD_FILE}")
        row: Mapping[str, Any] = measured.get(named, {})
        values = [shown(row.get(column.name), column.factor) for column in numbers]
        why = shown(state["why"]) or shown(row.get("busy_why"))
        linked: Cell = [named] if row and records else named
        found.append([linked, state["state"].replace("_", " "), *values, why, state["studies"]])
    found.sort(key=lambda row: row[1] not in FAULTS)
    return cells.of("runs", heads, found, "tables/runs.csv", room)


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
