"""Tables of the page: their rows from a table of the results folder, as text with links to records."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketscale.analysis import catalogue
from ketscale.analysis.report.columns import Group
from ketscale.grid import RECORD, RUNS, Run

if TYPE_CHECKING:
    import pandas as pd

FACTORS = {"(ms)": 1e3, "(MB)": 1e-6}
# Columns that stay in the table if all rows are alike, since links and readers look for them there.
KEPT = ("results", "record", "run", "study", "studies", "id", "state", "verdict", "statement")
# Their cells have a sign.
VERDICTS = ("supported", "more than claimed", "refuted", "undecided")
_INTERVAL = re.compile(r"-?[\d.,e+-]+ to -?[\d.,e+-]+")
_RUN = re.compile(rf"\S*{RUNS}/\S+")


@dataclass(frozen=True)
class Link:
    """A link: its text, and the row or file that it leads to."""

    text: str
    href: str


@dataclass(frozen=True)
class Cell:
    """A cell: the text shown, its kind (number, long, empty, or a word that has a sign), and links in place of text."""

    text: str
    kind: str = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where links to the runs of a results folder lead.

    prefix: how the ids of their rows begin. folder: what their files are in, seen from the page. runs: those that have a
    row.
    """

    prefix: str
    folder: str
    runs: frozenset[str]


@dataclass(frozen=True)
class Row:
    """A row and its id, by which links find it; empty if it has none."""

    id: str
    cells: list[Cell]


@dataclass(frozen=True)
class Table:
    """A table of the page. heads: of each group its title, whether it is folded, and its headings.

    alike: headings and values of the columns in which all rows have one name or count; they are above the table instead.
    """

    name: str
    caption: str
    heads: list[tuple[str, bool, list[str]]]
    rows: list[Row]
    alike: list[tuple[str, str]]


def of(
    name: str,
    groups: Sequence[Group],
    tables: Mapping[str, pd.DataFrame],
    places: Mapping[str, Place],
) -> Table:
    """The page's table of the results' table `name`; all its columns if it has no groups.

    Columns without any value are left out, such as a metric that no run has.

    places: that of each row's `results`; of '' if the tables are of one folder and have no such column.
    """
    table, groups = tables[name], groups or (_everything(tables[name]),)
    if name == "runs":
        table = table.assign(record=[Run.of(row).name for row in rows(table)])
    table = _with_intervals(table, groups)
    known = [_known(group, table) for group in groups]
    alike = {
        head: text
        for group in known
        for column, head in group.items()
        if (text := _alike(column, head, table))
    }
    known = [{column: head for column, head in group.items() if head not in alike} for group in known]
    heads = [
        (group.title, group.folded, list(columns.values()))
        for group, columns in zip(groups, known, strict=True)
        if columns
    ]
    columns = {column: head for group in known for column, head in group.items()}
    found = [_row(name, columns, row, places[row.get("results") or ""]) for row in rows(table)]
    return Table(name, catalogue.CAPTIONS.get(name, ""), heads, found, list(alike.items()))


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table by column."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _with_intervals(table: pd.DataFrame, groups: Sequence[Group]) -> pd.DataFrame:
    """The table and the columns LOW..HIGH of the groups, where it has both."""
    table = table.copy()
    for column, head in ((column, head) for group in groups for column, head in group.columns.items()):
        if ".." in column and {*column.split("..")} <= {*table.columns}:
            table[column] = [_between(row, column, head) for row in rows(table)]
    return table


def _between(row: Mapping[str, Any], column: str, head: str) -> str | None:
    """For example '0.12 to 0.3', of a column LOW..HIGH; None if one of the two is unknown."""
    low, high = (cell(row[name], head).text for name in column.split(".."))
    return f"{low} to {high}" if low and high else None


def _known(group: Group, table: pd.DataFrame) -> dict[str, str]:
    return {
        column: head
        for column, head in group.columns.items()
        if column in table and (table.empty or table[column].notna().any())
    }


def _alike(column: str, head: str, table: pd.DataFrame) -> str:
    """The name or whole number that all of several rows have in this column; empty if they differ, or are measured."""
    measured = ".." in column or table[column].dtype.kind == "f"
    if len(table) < 2 or column in KEPT or measured or table[column].nunique(dropna=False) > 1:
        return ""
    return cell(table[column].iloc[0], head).text


def _row(name: str, columns: Mapping[str, str], row: Mapping[str, Any], place: Place) -> Row:
    cells = [
        _linked(column, row[column], place) or cell(row[column], head) for column, head in columns.items()
    ]
    return Row(f"{place.prefix}run-{row['record']}" if name == "runs" else "", cells)


def _linked(column: str, value: Any, place: Place) -> Cell | None:
    """A cell of links to rows and records; None if it names no run that has a row."""
    if column == "record":
        return Cell(value, "", (_record(value, place),))
    if column not in ("run", "reference", "records") or not isinstance(value, str):
        return None
    links = [
        link
        for name in runs_in(value)
        if name in place.runs
        for link in (Link(name, f"#{place.prefix}run-{name}"), _record(name, place))
    ]
    return Cell(value, "long", tuple(links)) if links else None


def _record(run: str, place: Place) -> Link:
    return Link("record", f"{place.folder}{RUNS}/{run}/{RECORD}")


def runs_in(text: str) -> list[str]:
    """The names of the runs whose records or folders a text names, such as 'results/runs/.../metrics.json'."""
    found = (path.split(f"{RUNS}/", 1)[1].rstrip(",;") for path in _RUN.findall(text))
    return [name.removesuffix(f"/{RECORD}") for name in found]


def cell(value: Any, head: str = "") -> Cell:
    """A value as it is shown: numbers with four digits, in the unit of the heading; yes and no; long text that wraps."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Cell("", "empty")
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        if _INTERVAL.fullmatch(str(value)):
            return Cell(str(value), "number")
        text = {"True": "yes", "False": "no"}.get(str(value), str(value))
        return Cell(text, text if text in VERDICTS else "long" if len(text) > 36 else "")
    number = float(value) * next((factor for unit, factor in FACTORS.items() if head.endswith(unit)), 1.0)
    return Cell(shown(number), "number")


def shown(number: float) -> str:
    """A number with four significant digits, and without decimals from 10,000 on."""
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 1e4 else f"{number:,.4g}"


def _everything(table: pd.DataFrame) -> Group:
    return Group("columns", {str(name): str(name).replace("_", " ") for name in table.columns})
