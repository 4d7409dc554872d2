"""Tables of the page: a first part as HTML, and all rows as JSON for the page's script, which turns their pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Told
from ketscale.analysis.wording import digits
from ketscale.words import duration

# Rows that are on the page without a script, which has this number on each of its pages.
FIRST = 12
OPPOSITE = {"times as fast": "times as long", "times as long": "times as fast"}
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


def told(name: str, rows: Sequence[Told], file: str, room: Room) -> Table:
    """The table of a chapter: a row for each point."""
    more = dict.fromkeys(heading for row in rows for heading in row.more)
    heads = [
        Head("point", LONG),
        Head("compared with", LONG),
        Head("effect", NUMBER),
        Head("95 % interval", NUMBER),
        Head("n", NUMBER),
        Head("verdict", VERDICT),
        *(Head(heading, _kind([row.more.get(heading, "") for row in rows])) for heading in more),
    ]
    found: list[list[Cell]] = []
    for row in rows:
        n = str(row.effect.n) if row.effect and row.effect.n else ""
        cells = [row.point, row.beside, *said(row.effect, row.unit), n, row.verdict]
        found.append([*cells, *(row.more.get(heading, "") for heading in more)])
    return of(name, heads, found, file, room)


def said(found: Estimate | None, unit: str) -> tuple[str, str]:
    """A number with its unit, and its interval in this unit; empty where there is none.

    For example '1.54 times as fast', '+1.7 points' of a difference of shares, '95.0 %' of a share. A factor below one is
    that of the opposite: 0.5 times as fast is 2 times as long.
    """
    if found is None:
        return "", ""
    if unit in OPPOSITE and found.value < 1:
        return said(found.inverse(), OPPOSITE[unit])
    number = _number(found.value, unit)
    if unit == "points" and not number.startswith(("-", "0.0")):
        number = f"+{number}"
    named = unit.removeprefix("s ") if unit != "s" else ""
    text = unit.removeprefix("times ") if unit in OPPOSITE and number == "1" else f"{number} {named}".rstrip()
    if unit == "times" and number == "1":
        text = "as much"
    if found.low is None or found.high is None:
        return text, ""
    return text, f"{_number(found.low, unit)} to {_number(found.high, unit)}"


def _number(value: float, unit: str) -> str:
    if unit == "s" or unit.startswith("s "):
        return duration(value)
    if unit not in ("points", "%"):
        return digits(value)
    text = f"{value:.1f}"
    return "0.0" if text == "-0.0" else text


def _kind(texts: Sequence[str]) -> str:
    """The kind of some cells: numbers begin with a digit, as '95 %' and '1.2 ms'; long texts may be broken into lines."""
    if max(map(len, texts)) > UNBROKEN:
        return LONG
    numbers = all(text.lstrip("+-")[:1].isdigit() for text in texts if text)
    return NUMBER if numbers else WORD
