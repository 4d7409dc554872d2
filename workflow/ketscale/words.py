"""Numbers, durations, counted things, names, tables and messages as text for people. Imports next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

# The length of each unit in seconds, and the least time written in it. Days begin at two, since a day has no plural
# to be wrong about.
_UNITS = (
    ("days", 86400.0, 172800.0),
    ("h", 3600.0, 3600.0),
    ("min", 60.0, 60.0),
    ("s", 1.0, 1.0),
    ("ms", 1e-3, 1e-3),
)


def duration(seconds: float, digits: int = 3) -> str:
    """A time in its natural unit, such as '2.5 ms'. An estimate has two digits at most."""
    if not seconds:
        return "0 s"
    for unit, size, least in _UNITS:
        # A time that rounds up to the unit is written in it: 0.9996 s is '1 s', not '1000 ms'.
        if seconds >= least * (1 - 0.5 * 10**-digits):
            return f"{rounded(seconds / size, digits)} {unit}"
    return f"{rounded(seconds / 1e-6, digits)} µs"


def rounded(number: float, digits: int = 2) -> str:
    """A number with so many significant digits, and without an exponent from 0.0001 on."""
    return f"{float(f'{number:.{digits}g}'):,.15g}"


# The numbers that a sentence spells.
_SPELLED = [
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
]  # fmt: skip


def spelled(number: int) -> str:
    """A count in a sentence: 'two', '1,024'."""
    return _SPELLED[number] if number < len(_SPELLED) else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """A number of things, such as '1 run' and '2 runs'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """A line for each row, in which the cells of a column begin at the same place, or end there if it is in `right`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# How lines of `say` and of `notice` begin.
HEAD = "ketscale: "
NOTICE = f"{HEAD}note: "


def say(message: object) -> None:
    """Tell people on stderr what happens, in a line by itself."""
    print(f"{HEAD}{message}", file=sys.stderr, flush=True)


def notice(message: object) -> None:
    """The same for a message that does not explain why a run ended, so that a log marks it as a note."""
    print(f"{NOTICE}{message}", file=sys.stderr, flush=True)


def suggestion(name: str, names: Collection[str]) -> str:
    """'; did you mean ...?' for a misspelt name, else the choices."""
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return (
        f"; did you mean {close[0]}?"
        if close
        else f"; choose from {', '.join(names) or 'nothing: none is defined'}"
    )
