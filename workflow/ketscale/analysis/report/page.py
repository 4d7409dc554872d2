"""The page of a results folder: a chapter for each study, figures of several, runs, and where the numbers are from.

It is made of the tables and the files of the figures alone.
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

from ketscale.analysis import columns, completeness, figures, verdicts
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.columns import TABLES
from ketscale.analysis.kinds import Figure, kinds
from ketscale.analysis.report import cells, provenance
from ketscale.analysis.report.cells import LONG, NUMBER, RECORD, Cell, Head, Room, Table
from ketscale.analysis.wording import listed, shown
from ketscale.grid import RECORD as RECORD_FILE
from ketscale.grid import RUNS, Run
from ketscale.words import counted

TEMPLATE = "page.html.j2"
# What figures, and rows beyond the first ones of each table, may take of a page, which stays below 5 MB with them. Others
# are only in their files, to which the page leads.
FIGURES_BYTES, ROWS_BYTES = 2_800_000, 1_200_000
# The files of a figure that the page leads to, and those that it shows.
FILES, WIDE, NARROW = ("svg", "png", "csv"), "svg", "narrow.svg"


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
    """A study on the page, on one class of hosts: the id of its section, and its row of answers.csv."""

    id: str
    answer: Mapping[str, Any]
    notes: Sequence[str]
    host: str
    runs: int
    table: Table
    picture: Picture | None


def rendered(analysed: Analysed, results: Path) -> bytes:
    """The page of a results folder."""
    config, known, tables = analysed.config, kinds(analysed.config.families), analysed.tables
    room, rows = Room(FIGURES_BYTES), Room(ROWS_BYTES)

    def picture(name: str, figure: Figure) -> Picture | None:
        paths = {form: f"{figures.FOLDER}/{quote(name)}.{form}" for form in (*FILES, NARROW)}
        if not (results / f"{figures.FOLDER}/{name}.{WIDE}").exists():
            return None
        wide, narrow = (
            _source(results / f"{figures.FOLDER}/{name}.{form}", paths[form], room) for form in (WIDE, NARROW)
        )
        return Picture(figure.title, figure.caption, wide, narrow, {form: paths[form] for form in FILES})

    chapters = []
    for answer in columns.rows(tables["answers"]):
        answer = {name: None if cells.missing(value) else value for name, value in answer.items()}
        kind, host, name = known[answer["kind"]], figures.host_of(answer), figures.name_of(analysed, answer)
        own = tables[kind.table]
        own = own[(own["study"] == answer["study"]) & (own["on"].fillna("") == host)]
        own = own[own["law"] != "probe"] if kind.table == "fits" else own
        if kind.table == "quality":
            own = own[
                own["chosen"].astype(bool) | own["row"].notna() | ((own["failed"] > 0) & (own["n"] == 0))
            ]
        table = cells.of_study(f"{name}-points", own, TABLES[kind.table], config, rows)
        (study,) = [each for each in config.studies if each.name == answer["study"]]
        chapters.append(Chapter(
            f"study-{name.replace('@', '-')}", answer, cells.text(answer["notes"]).strip().splitlines(), host, len(study.runs),
            table, picture(name, kind.figure) if kind.figure else None,
        ))  # fmt: skip
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["slug"] = slug
    words = {*tables["answers"]["verdict"].dropna()}
    words |= {word for name in ("speed", "quality", "fits") for word in tables[name]["verdict"].dropna()}
    return (
        environment.get_template(TEMPLATE)
        .render(
            config=config,
            complete=analysed.complete,
            state=_state(tables["runs"]),
            warning=completeness.warning(tables["runs"]),
            chapters=chapters,
            overviews=[made for each in figures.overviews(config) if (made := picture(each.name, each))],
            listing=_runs(analysed, rows),
            runs=tables["runs"],
            provenance=provenance,
            counted=counted,
            tables=[name for name, frame in tables.items() if len(frame)],
            meanings={word: meaning for word, meaning in verdicts.MEANINGS.items() if word in words},
        )
        .encode()
    )


def slug(text: str) -> str:
    """A text as an id of the page."""
    return re.sub(r"\W+", "-", text).strip("-")


def _source(svg: Path, path: str, room: Room) -> str:
    data = f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode()}"
    return data if room.takes(data) else path


def _state(runs: Any) -> str:
    """How many runs ended how, for example '69 runs: 66 completed and 3 timed out'."""
    counts = [
        f"{count} {state.replace('_', ' ')}" for state, count in sorted(Counter(runs["status"]).items())
    ]
    return f"{counted(len(runs), 'run')}: {listed(counts)}" if counts else "no runs"


def _runs(analysed: Analysed, room: Room) -> Table:
    """Every run of the studies: its record, its state, what it measured; those without a record first."""
    numbers = [column for column in columns.RUNS.columns(analysed.config) if column.shown]
    heads = [
        Head("run", RECORD, f"{RUNS}/{{}}/{RECORD_FILE}"), Head("state"),
        *(Head(column.title, NUMBER) for column in numbers), Head("why", LONG), Head("studies"),
    ]  # fmt: skip
    made: list[list[Cell]] = []
    for row in columns.rows(analysed.tables["runs"]):
        name, status = Run.of(row).name, str(row["status"])
        linked: Cell = [name] if status not in completeness.FAULTS else name
        why = cells.text(row["why"]) or cells.text(row["busy_why"])
        values = [shown(row[column.name], column.factor) for column in numbers]
        made.append([linked, status.replace("_", " "), *values, why, cells.text(row["studies"])])
    made.sort(key=lambda row: row[1] not in completeness.FAULTS)
    return cells.of("runs", heads, made, "tables/runs.csv", room)
