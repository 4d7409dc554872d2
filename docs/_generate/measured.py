"""The CSV files of the measurements: a table with a line `[CSV](NAME.csv)` below it is in that file too.

`python -m docs._generate.measured` writes them all. A test says when that is due, and that no long table is without one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[1]


class Table(NamedTuple):
    """A table of a page: its cells as plain text, the heading first, and the CSV file that it names."""

    page: Path
    rows: list[list[str]]
    file: Path | None


def pages() -> list[Path]:
    """The pages with measurements."""
    return [DOCS / "benchmarks.md", *sorted((DOCS / "measurements").glob("2*.md"))]


def tables(page: Path) -> Iterator[Table]:
    """The tables of a page."""
    for found in re.finditer(r"((?:^\|.*\n)+)(?:\n\[CSV\]\((\S+)\))?", page.read_text(), re.MULTILINE):
        heading, _, *rows = found[1].splitlines()
        file = (page.parent / found[2]).resolve() if found[2] else None
        yield Table(page, [_cells(row) for row in (heading, *rows)], file)


def _cells(row: str) -> list[str]:
    return [re.sub(r"[`*]", "", cell).strip() for cell in row.strip().strip("|").split("|")]


def files() -> dict[Path, str]:
    """What each CSV file has to have."""
    made: dict[Path, str] = {}
    for table in (table for page in pages() for table in tables(page)):
        if table.file is None:
            continue
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(table.rows)
        made[table.file] = text.getvalue()
    return made


def read(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file of the measurements."""
    with (DOCS / "measurements" / name).open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text)
