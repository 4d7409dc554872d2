"""Tables of the page: a first part as HTML, and all rows as JSON for the page's script, which turns their pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis import columns
from ketscale.analysis.heavy import pd
from ketscale.analysis.wording import amount, shown
from ketscale.config import Config
from ketscale.words import duration

# Rows that are on the page without a script, which has this number on each of its pages.
FIRST = 12
# The characters of a cell that stays on one line, also on a phone.
UNBROKEN = 32
NUMBER, WORD, LONG, VERDICT, RECORD = "number", "word", "long", "verdict", "record"


@dataclass(frozen=True)
class Head:
    """A column: its heading, and what its cells are.

    link: of records, what is before and after a cell's text in the path to its file; '{}' stands for the text. Only a cell
    that is a list of one text is such a link.
    """

    text: str
    kind: str = WORD
    link: str = ""


Cell = str | list[str]


@dataclass(frozen=True)
class Table:
    """A table of the page.

    name: its id. rows: all, or those that are on the page. data: all rows as JSON, empty if `rows` are all. count: of all
    rows. file: the CSV file with all rows.
    """

    name: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    data: str
    count: int
    file: str


class Room:
    """The bytes that are left on the page for what it can do without, since the same is in files beside it."""

    def __init__(self, size: int) -> None:
        self.left = size

    def takes(self, text: str) -> bool:
        """Whether a text still fits; if so, its room is taken."""
        fits = len(text.encode()) <= self.left
        self.left -= fits * len(text.encode())
        return fits


def of(name: str, heads: Sequence[Head], rows: Sequence[Sequence[Cell]], file: str, room: Room) -> Table:
    """The table without the columns in which no row has a value; with its first rows alone if all do not fit in `room`."""
    kept = [at for at, _ in enumerate(heads) if any(row[at] for row in rows)]
    rows = [[row[at] for at in kept] for row in rows]
    table = Table(name, [heads[at] for at in kept], rows, "", len(rows), file)
    if len(rows) <= FIRST:
        return table
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return replace(table, rows=rows[:FIRST], data=data if room.takes(data) else "")


def of_study(name: str, rows: pd.DataFrame, table: columns.Table, config: Config, room: Room) -> Table:
    """The table of a chapter: a row for each point, with what `columns` shows of it."""
    asked = {column.name: column for column in table.columns(config)}
    more = [
        column for column in asked.values() if column.shown and column.name not in ("effect", "pairs", "n")
    ]
    counted = "pairs" if "pairs" in asked else "n"
    heads = [
        Head("point", LONG), Head("compared with", LONG), Head("effect", NUMBER), Head("95 % interval", NUMBER),
        Head("n", NUMBER), Head("verdict", VERDICT), Head("why", LONG), *(Head(column.heading or column.name.replace("_", " "), NUMBER) for column in more),
    ]  # fmt: skip
    made: list[list[Cell]] = []
    for row in columns.rows(rows):
        effect, interval = (
            ("", "")
            if missing(row["effect"])
            else amount(row["effect"], row["low"], row["high"], text(row["unit"]))
        )
        n = "" if missing(row[counted]) or not effect else f"{row[counted]:.0f}"
        own = [cell(row, column, config) for column in more]
        made.append(
            [
                text(row["point"]),
                text(row["reference"]),
                effect,
                interval,
                n,
                text(row["verdict"]),
                text(row["why"]),
                *own,
            ]
        )
    kept = [
        Head(head.text, _kind([str(row[at]) for row in made])) if at > 6 else head
        for at, head in enumerate(heads)
    ]
    return of(name, kept, made, f"tables/{table.name}.csv", room)


def cell(row: Mapping[str, Any], column: columns.Column, config: Config) -> str:
    """A cell of a column: times with their unit, shares in per cent, counts only where there are some."""
    value = row[column.name]
    if missing(value) or value == "":
        return ""
    if column.unit == "s":
        return duration(value)
    if column.name in ("value", "baseline_value"):
        metric, low, high = config.family(row["workload"]).headline, row["value_low"], row["value_high"]
        form = (lambda number: f"{100 * number:.1f}") if metric.is_share else (lambda number: f"{number:.3g}")
        ends = "" if missing(low) or column.name != "value" else f" ({form(low)} to {form(high)})"
        return f"{form(value)}{' %' if metric.is_share else ''}{ends}"
    if column.name in ("busy", "timed_out", "failed", "absent", "control_failed"):
        return f"{value:.0f}" if value else ""
    if column.unit == "share":
        return f"{100 * value:.0f} %"
    return f"{value:.1e}" if column.name in ("error", "losses") else shown(value, column.factor)


def missing(value: Any) -> bool:
    """Whether a table has no value."""
    return value is None or value != value


def text(value: Any) -> str:
    """A text of a table; '' of none."""
    return "" if missing(value) else str(value)


def _kind(texts: Sequence[str]) -> str:
    """The kind of some cells: numbers begin with a digit, as '95 %' and '1.2 ms'; long texts may be broken into lines."""
    if max(map(len, texts), default=0) > UNBROKEN:
        return LONG
    numbers = all(text.lstrip("+-")[:1].isdigit() for text in texts if text)
    return NUMBER if numbers else WORD
