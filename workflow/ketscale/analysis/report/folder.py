"""What the page says of one results folder: a chapter for each study, figures of several, claims, runs, and where from."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ketscale.analysis import catalogue, columns
from ketscale.analysis.answers import Part
from ketscale.analysis.completeness import FAULTS
from ketscale.analysis.kinds import kinds
from ketscale.analysis.kinds.kind import Figure
from ketscale.analysis.report import cells, provenance
from ketscale.analysis.report.cells import LONG, NUMBER, RECORD, VERDICT, Cell, Head, Room, Table
from ketscale.analysis.wording import listed
from ketscale.config import Config
from ketscale.grid import RECORD as RECORD_FILE
from ketscale.grid import RUNS, Run

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.analysis.analysed import Analysed

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
    """A study on the page, on one class of hosts.

    id: of its section. part: the answer. effect, interval: of the answer, in words.
    """

    id: str
    part: Part
    effect: str
    interval: str
    table: Table
    picture: Picture | None


@dataclass(frozen=True)
class Folder:
    """A results folder on the page.

    key: its name there, and prefix: what its ids begin with; both '' on a page of one folder. state: how many runs ended
    how; whole: whether all have a record that can be used. files: its tables, by name. verdicts: the words that occur.
    """

    key: str
    prefix: str
    config: Config
    chapters: Sequence[Chapter]
    overviews: Sequence[Picture]
    claims: Table
    runs: Table
    state: str
    whole: bool
    warnings: Sequence[str]
    files: Mapping[str, str]
    verdicts: frozenset[str]
    provenance: Mapping[str, Sequence[str]]
    packages: Sequence[str]
    bibtex: str
    commit: str
    config_text: str
    config_hash: str

    @classmethod
    def of(
        cls, analysed: Analysed, key: str, folder: str, records: bool, figures: Room, rows: Room
    ) -> Folder:
        """What the page says of a folder; see `page.rendered`. figures, rows: the room that they may still take."""
        config, prefix, folder = analysed.config, f"{key}-" if key else "", quote(folder)
        tables, runs = analysed.tables, analysed.tables["runs"]
        known = kinds(config.families)

        def picture(name: str, of: Figure) -> Picture:
            paths = {form: f"{folder}figures/{quote(name)}.{form}" for form in (*FILES, NARROW)}
            wide, narrow = (
                _source(analysed.figures[name][form], paths[form], figures) for form in (WIDE, NARROW)
            )
            return Picture(of.title, of.caption, wide, narrow, {form: paths[form] for form in FILES})

        chapters: list[Chapter] = []
        for part in analysed.parts:
            earlier = sum(chapter.part.study.name == part.study.name for chapter in chapters)
            name = f"{prefix}study-{part.study.name}" + (f"-{earlier + 1}" if earlier else "")
            table = cells.told(f"{name}-points", part.answer.rows, f"{folder}tables/answers.csv", rows)
            figure = known[part.study.kind].figure
            shown = picture(part.figure, figure) if figure and part.figure in analysed.figures else None
            chapters.append(
                Chapter(name, part, *cells.said(part.answer.effect, part.answer.unit), table, shown)
            )
        states = tables["completeness"][tables["completeness"]["run"] != "*"]
        return cls(
            key,
            prefix,
            config,
            chapters,
            [
                picture(figure.name, figure)
                for figure in catalogue.overviews(config)
                if figure.name in analysed.figures
            ],
            _claims(f"{prefix}claims", tables["claims"], f"{folder}tables/claims.csv", rows),
            _runs(f"{prefix}runs", config, runs, states, folder, records, rows),
            _state(states["state"].tolist()),
            not states["state"].isin(FAULTS).any(),
            tables["completeness"][tables["completeness"]["run"] == "*"]["why"].tolist(),
            {name: f"{folder}tables/{name}.csv" for name in columns.TABLES if len(analysed.written[name])},
            frozenset(_said(chapters)) | frozenset(tables["claims"]["verdict"]),
            provenance.of(runs),
            provenance.packages(runs),
            provenance.bibtex(runs, f"ketscale-{key}" if key else "ketscale"),
            provenance.commit(runs),
            provenance.config_text(config),
            analysed.sources.config,
        )


def _source(svg: bytes, path: str, room: Room) -> str:
    data = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return data if room.takes(data) else path


def _said(chapters: Sequence[Chapter]) -> Iterator[str]:
    for chapter in chapters:
        yield chapter.part.answer.verdict
        yield from (row.verdict for row in chapter.part.answer.rows)


def _state(states: Sequence[str]) -> str:
    """For example '69 runs: 66 completed and 3 timed out'."""
    counts = [f"{states.count(state)} {state.replace('_', ' ')}" for state in sorted(set(states))]
    return f"{len(states)} runs: {listed(counts)}" if counts else "no runs"


def _claims(name: str, claims: pd.DataFrame, file: str, room: Room) -> Table:
    heads = [
        Head("id"), Head("claim", LONG), Head("verdict", VERDICT), Head("effect", NUMBER), Head("95 % interval", NUMBER),
        Head("n", NUMBER), Head("why", LONG),
    ]  # fmt: skip
    found: list[list[Cell]] = []
    for row in _rows(claims):
        low, high = cells.shown(row["low"]), cells.shown(row["high"])
        between = f"{low} to {high}" if low and high else ""
        texts = [
            cells.shown(row[column]) for column in ("id", "statement", "verdict", "effect", "n", "reason")
        ]
        found.append([*texts[:4], between, *texts[4:]])
    return cells.of(name, heads, found, file, room)


def _runs(
    name: str,
    config: Config,
    runs: pd.DataFrame,
    states: pd.DataFrame,
    folder: str,
    records: bool,
    room: Room,
) -> Table:
    """Every run of the studies: its record, its state, what it measured; those without a record first."""
    shown = [column for column in columns.RUNS.columns(config) if column.shown]
    numbers = [Head(column.title, NUMBER) for column in shown]
    run = Head("run", RECORD, f"{folder}{RUNS}/{{}}/{RECORD_FILE}")
    heads = [run, Head("state"), *numbers, Head("why", LONG), Head("studies")]
    measured = {Run.of(row).name: row for row in _rows(runs)}
    found: list[list[Cell]] = []
    for state in _rows(states):
        named = str(state["run"]).split(f"{RUNS}/", 1)[-1].removesuffix(f"/{RECORD_FILE}")
        row: Mapping[str, Any] = measured.get(named, {})
        values = [cells.shown(row.get(column.name), column.factor) for column in shown]
        why = cells.shown(state["why"]) or cells.shown(row.get("busy_why"))
        linked: Cell = [named] if row and records else named
        found.append([linked, state["state"].replace("_", " "), *values, why, state["studies"]])
    found.sort(key=lambda row: row[1] not in FAULTS)
    return cells.of(name, heads, found, f"{folder}tables/runs.csv", room)


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
