"""The page of a results folder: a chapter for each study, figures of several, runs, and where the numbers are from.

It is made of the tables and the files of the figures alone.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import jinja2
import yaml

import ketscale
from ketscale.analysis import columns, figures, verdicts
from ketscale.analysis.analysed import FAULTS, Analysed
from ketscale.analysis.columns import TABLES, Column
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds import Figure, Kind, kinds
from ketscale.analysis.wording import amount, listed, number_of
from ketscale.config import Config
from ketscale.grid import RECORD, RUNS, Run
from ketscale.words import counted, duration

TEMPLATE = "page.html.j2"
# What figures may take of a page, and how many rows all its tables have together, so that it stays below 5 MB. Others
# are only in their files, to which the page leads.
FIGURES_BYTES, ROWS = 2_500_000, 2_000
# The characters of a text that stays on one line, also on a phone.
UNBROKEN = 32
# The first column of the table of runs.
RUN = Column("run", "The run, with a link to its record", text=True)
# The ends of the intervals of numbers that are shown with theirs.
ENDS = {
    "effect": ("low", "high"),
    "value": ("value_low", "value_high"),
}


@dataclass
class Pictures:
    """The figures of a page as data, or as paths where the page has no room left; left: the bytes that there are for them."""

    results: Path
    remaining: int = FIGURES_BYTES

    def of(self, name: str, figure: Figure) -> dict[str, Any] | None:
        """A figure with its drawing, and its files by format; None if nothing was drawn."""
        file = self.results / f"{figures.FOLDER}/{name}.svg"
        if not file.exists():
            return None
        files = {form: f"{figures.FOLDER}/{quote(name)}.{form}" for form in figures.ENDINGS}
        drawing = f"data:image/svg+xml;base64,{base64.b64encode(file.read_bytes()).decode()}"
        if len(drawing) > self.remaining:
            drawing = files["svg"]
        else:
            self.remaining -= len(drawing)
        return {"title": figure.title, "caption": figure.caption, "files": files, "drawing": drawing}


def rendered(analysed: Analysed, results: Path) -> bytes:
    """The page of a results folder."""
    config, families, tables = analysed.config, kinds(analysed.config.families), analysed.tables
    answers, runs, pictures = columns.rows(tables["answers"]), tables["runs"], Pictures(results)
    most = ROWS // (len(answers) + 1)
    sizes = {study.name: len(study.runs) for study in config.studies}
    overviews = [figure for figure in figures.figures_of(config) if figure.name not in sizes]
    chapters = []
    for answer in answers:
        kind, name = families[answer["kind"]], answer["study"]
        own = _points(tables[kind.table], kind, name)
        about = {"id": f"study-{name}", "runs": sizes[name], "answer": answer}
        about["notes"] = "" if pd.isna(answer["notes"]) else answer["notes"]
        about["table"] = table_of(f"{name}-points", own, TABLES[kind.table], config, most)
        chapters.append({**about, "picture": pictures.of(name, kind.figure) if kind.figure else None})
    states = [f"{n} {state.replace('_', ' ')}" for state, n in sorted(Counter(runs["status"]).items())]
    # Runs that were not completed come first.
    listing = runs.iloc[(runs["status"] == "completed").argsort(kind="stable")]
    words = {word for table in tables.values() if "verdict" in table for word in table["verdict"].dropna()}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(TEMPLATE).render(
        config=config,
        complete=analysed.complete,
        state=f"{counted(len(runs), 'run')}: {listed(states)}" if states else "no runs",
        chapters=chapters,
        overviews=[picture for each in overviews if (picture := pictures.of(each.name, each))],
        listing=table_of("runs", listing, columns.RUNS, config, most),
        provenance=provenance(runs),
        packages=sorted({package for text in _distinct(runs, "packages") for package in text.split()}),
        commit=commit(runs),
        config_text=yaml.safe_dump(json.loads(config.text), sort_keys=False, allow_unicode=True, width=100),
        counted=counted,
        tables=[name for name, frame in tables.items() if len(frame)],
        meanings={word: meaning for word, meaning in verdicts.MEANINGS.items() if word in words},
    )
    return page.encode()


def _points(table: pd.DataFrame, kind: Kind, study: str) -> pd.DataFrame:
    """The rows of a study that its chapter has: of models those that were chosen or failed."""
    own = table[table["study"] == study]
    if kind.table == "quality":
        failed = (own["failed"] > 0) & (own["n"] == 0)
        return own[own["chosen"].astype(bool) | own["row"].notna() | failed]
    return own


def provenance(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Date, machine, code and data of the runs' records, with all values if records differ."""
    searches_h = runs[runs["studies"] == "search"]["node_hours"].sum()
    cost = f"{runs['node_hours'].sum() - searches_h:.3g} node-hours, {runs['gpu_hours'].sum():.3g} GPU-hours"
    codes, year = _distinct(runs, "code"), max(_distinct(runs, "stopped"), default="")[:4]
    times = _distinct(runs, "started")[:1] + _distinct(runs, "stopped")[-1:]
    dates = " to ".join(text[:16].replace("T", " ") for text in times)
    distinct = {
        "measured": [f"{dates} UTC"] if dates else [],
        "machine": _distinct(runs, "hardware"),
        "MPI": _distinct(runs, "mpi_library"),
        "code": [f"KetScale {text}" for text in codes],
        # As in CITATION.cff, which an installed package does not have.
        "cite as": [f"The KetScale developers, KetScale {', '.join(codes)}, {year}"] if codes else [],
        # The version of this package, whatever trained the runs.
        "page": [f"KetScale {ketscale.__version__}"],
        "prepared data": [f"SHA-256 {value[:16]}…" for value in _distinct(runs, "features_hash")],
        "cost": [f"{cost}; searches {searches_h:.3g} node-hours" if searches_h else cost],
    }
    return {name: values for name, values in distinct.items() if values}


def commit(runs: pd.DataFrame) -> str:
    """The commit of the runs, if all are of one."""
    matches = [re.search(r" ([0-9a-f]+)(?:\+dirty)?$", text) for text in _distinct(runs, "code")]
    commits = {match[1] if match else "" for match in matches}
    return commits.pop() if len(commits) == 1 else ""


def _distinct(runs: pd.DataFrame, column: str) -> list[str]:
    return sorted({str(value) for value in runs[column].dropna()})


class Cell(NamedTuple):
    """A cell: its text, the number by which its column is sorted (None: by the text), and the file that it leads to."""

    text: str = ""
    value: float | None = None
    link: str = ""


class Table(NamedTuple):
    """A table of the page: its id, headings with the class of their cells, rows, the number of all rows, and their CSV file."""

    name: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    size: int
    file: str


def table_of(name: str, frame: pd.DataFrame, table: columns.Table, config: Config, most: int) -> Table:
    """The first rows of a table, with the columns that are shown and in which some of them has a value."""
    visible = [column for column in table.columns(config) if column.page]
    used = [RUN, *visible] if table is columns.RUNS else visible
    rows = [[cell(row, column, config) for column in used] for row in columns.rows(frame.head(most))]
    filled = [at for at, _ in enumerate(used) if any(row[at].text for row in rows)]
    heads = [(used[at].title, _kind(used[at], [row[at].text for row in rows])) for at in filled]
    return Table(
        name, heads, [[row[at] for at in filled] for row in rows], len(frame), f"tables/{table.name}.csv"
    )


def cell(row: Mapping[str, Any], column: Column, config: Config) -> Cell:
    """A cell of a row."""
    if column is RUN:
        run = Run.of(row).name
        return Cell(run, link="" if row["status"] in FAULTS else f"{RUNS}/{run}/{RECORD}")
    value = row[column.name]
    if pd.isna(value):
        return Cell()
    if column.text:
        return Cell(value.replace("_", " ") if column.name == "status" else value)
    # A number stays on the line of its unit, and whole, such as 2e-16; its interval may be below.
    text = _number(row, column, config).replace("e-", "e-\u2060").replace(" ", "\u00a0")
    return Cell(text.replace("\u00a0(", " ("), float(value))


def _number(row: Mapping[str, Any], column: Column, config: Config) -> str:
    """Times with their unit, shares in per cent, effects with their interval, counts only where there are some."""
    value = row[column.name]
    if column.name in ENDS:
        low, high = (row[end] for end in ENDS[column.name])
        factor, unit = 1, row["unit"]
        if column.name != "effect":
            factor, unit = (100, "%") if config.family(row["workload"]).headline.is_share else (1, "")
        text, interval = amount(factor * value, factor * low, factor * high, unit)
        return f"{text} ({interval})" if interval else text
    if column.unit == "s":
        return duration(value)
    if column.unit == "share":
        return f"{100 * value:.0f} %"
    if column.unit in ("pairs", "seeds"):
        return f"{value:.0f}" if value else ""
    return number_of(value, column.factor)


def _kind(column: Column, texts: Sequence[str]) -> str:
    """The class of a column's cells; long texts may be broken into lines."""
    if column is RUN or column.name == "verdict":
        return column.name
    return ("long" if max(map(len, texts)) > UNBROKEN else "word") if column.text else "number"
