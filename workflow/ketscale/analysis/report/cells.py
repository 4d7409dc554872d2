"""Tables of the page: of each row what the page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale.analysis import columns
from ketscale.analysis.analysed import FAULTS
from ketscale.analysis.columns import Column
from ketscale.analysis.heavy import pd
from ketscale.analysis.wording import amount, shown
from ketscale.config import Config
from ketscale.grid import RECORD, RUNS, Run
from ketscale.words import duration

# The characters of a text that stays on one line, also on a phone.
UNBROKEN = 32
# The first column of the table of runs.
RUN = Column("run", "The run, with a link to its record", text=True)
# The ends of the intervals of numbers that are shown with theirs.
ENDS = {
    "effect": ("low", "high"),
    "value": ("value_low", "value_high"),
    "baseline_value": ("baseline_low", "baseline_high"),
}


@dataclass(frozen=True)
class Cell:
    """A cell: its text, the number by which its column is sorted (None: by the text), and the file that it leads to."""

    text: str = ""
    value: float | None = None
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the page.

    name: its id. heads: each heading with the kind of its cells, a class of the page's style. rows: those on the page.
    count: of all rows. file: the CSV file with all of them.
    """

    name: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    count: int
    file: str


def of(name: str, frame: pd.DataFrame, table: columns.Table, config: Config, most: int) -> Table:
    """The first rows of a table, with the columns that are shown and in which some of them has a value."""
    asked = [
        *([RUN] if table is columns.RUNS else []),
        *(each for each in table.columns(config) if each.shown),
    ]
    rows = [[cell(row, column, config) for column in asked] for row in columns.rows(frame.head(most))]
    kept = [at for at, _ in enumerate(asked) if any(row[at].text for row in rows)]
    heads = [(asked[at].title, _kind(asked[at], [row[at].text for row in rows])) for at in kept]
    rows = [[row[at] for at in kept] for row in rows]
    return Table(name, heads, rows, len(frame), f"tables/{table.name}.csv")


def cell(row: Mapping[str, Any], column: Column, config: Config) -> Cell:
    """A cell of a row."""
    if column is RUN:
        run = Run.of(row).name
        return Cell(run, link="" if row["status"] in FAULTS else f"{RUNS}/{run}/{RECORD}")
    value = row[column.name]
    if missing(value):
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
    return shown(value, column.factor)


def missing(value: Any) -> bool:
    """Whether a table has no value."""
    return value is None or value != value


def _kind(column: Column, texts: Sequence[str]) -> str:
    """The class of a column's cells; long texts may be broken into lines."""
    if column is RUN or column.name == "verdict":
        return column.name
    return ("long" if max(map(len, texts)) > UNBROKEN else "word") if column.text else "number"
