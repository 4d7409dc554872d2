"""Tables and numbers of the pages that are those of a CSV file, which has a measurement whole.

A table with a line `[CSV](FILE.csv)` below it is an excerpt: its columns are some of the file's, its rows some of the file's
rows. A number in prose is marked by a comment behind it, which forges and the site do not show:

    18.3 times<!-- 2026-11-peers.csv / 8 x 128 / tensorcircuit / over fused -->

The comment names the file, relative to the page, then cells of one row, then a column. The last number before it, with what is
in brackets behind, has to stand in that row and column, or be what stands there rounded. `tests/style/docs` checks both.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[1]
NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
# A number, its unit, and what is in brackets behind it: `1.9x (1.8 to 2.0)`.
SAID = re.compile(rf"({NUMBER}[^\d()\n]{{0,16}}(?:\([^()\n]*\))?)<!-- (\S+\.csv) / (.+?) -->")


class Table(NamedTuple):
    """A table of a page: its cells as plain text, the heading first, and the CSV file that it names."""

    page: Path
    rows: list[list[str]]
    file: Path | None


class Mark(NamedTuple):
    """A number of a page: as it is said, the CSV file, cells of the row, and the column."""

    page: Path
    said: str
    file: Path
    cells: list[str]
    column: str


def tables(page: Path) -> Iterator[Table]:
    """The tables of a page."""
    for found in re.finditer(r"((?:^\|.*\n)+)(?:\n\[CSV\]\((\S+)\))?", page.read_text(), re.MULTILINE):
        heading, _, *rows = found[1].splitlines()
        file = (page.parent / found[2]).resolve() if found[2] else None
        yield Table(page, [cells(row) for row in (heading, *rows)], file)


def cells(row: str) -> list[str]:
    """The cells of a line of a table, as plain text."""
    return [re.sub(r"[`*]", "", cell).strip() for cell in row.strip().strip("|").split("|")]


def strangers(table: Table) -> list[list[str]]:
    """The rows that the table's file does not have."""
    assert table.file is not None
    heading, *rows = _lines(table.file)
    if missing := [name for name in table.rows[0] if name not in heading]:
        return [missing]
    places = [heading.index(name) for name in table.rows[0]]
    known = [[row[place] for place in places] for row in rows]
    return [row for row in table.rows[1:] if row not in known]


def prose(page: Path) -> str:
    """A page without code in a line."""
    return re.sub(r"`[^`\n]*`", "", page.read_text())


def marks(page: Path) -> Iterator[Mark]:
    """The numbers of a page that are marked."""
    for found in SAID.finditer(prose(page)):
        *cells, column = found[3].split(" / ")
        yield Mark(page, found[1], page.parent / found[2], cells, column)


def wrong(mark: Mark) -> str | None:
    """Why a number is not that of its cell, or nothing."""
    heading, *rows = _lines(mark.file)
    rows = [row for row in rows if all(cell in row for cell in mark.cells)]
    if len(rows) != 1 or heading.count(mark.column) != 1:
        return f"{len(rows)} rows and {heading.count(mark.column)} columns of this name"
    cell = rows[0][heading.index(mark.column)]
    said, there = (_numbers(text) for text in (mark.said, cell))
    places = range(len(there) - len(said) + 1)
    if any(all(map(_rounds, there[place:], said)) for place in places):
        return None
    return f"the file has {cell}"


def _numbers(text: str) -> list[Decimal]:
    # The hyphen of `8-12` is no sign.
    return [Decimal(each.replace(",", "")) for each in re.findall(rf"(?<![\w.]){NUMBER}", text)]


def _rounds(whole: Decimal, short: Decimal) -> bool:
    return whole == short or round(whole, -int(short.as_tuple().exponent)) == short


def _lines(file: Path) -> list[list[str]]:
    with file.open(newline="") as lines:
        return list(csv.reader(lines))


def read(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file of the measurements."""
    with (DOCS / "measurements" / name).open(newline="") as file:
        return list(csv.DictReader(file))
