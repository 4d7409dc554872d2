"""Numbers in words, as status and plan print them."""

from __future__ import annotations

from ketscale.jobs.costs.interval import Interval


def duration(seconds: float) -> str:
    """A time in its natural unit, to two significant digits."""
    for unit, length, least in (("days", 86400, 172800), ("h", 3600, 7200), ("min", 60, 120), ("s", 1, 1)):
        if seconds >= least:
            return f"{rounded(seconds / length)} {unit}"
    if not seconds:
        return "0 s"
    return f"{rounded(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{rounded(seconds * 1e6)} us"


def between(time: Interval) -> str:
    """A time in seconds with its interval."""
    return f"{duration(time.middle)} ({duration(time.low)} to {duration(time.high)})"


def rounded(value: float) -> str:
    """Two significant digits: an estimate has no more."""
    return f"{float(f'{value:.2g}'):g}"


def counted(number: int, word: str) -> str:
    """A number of things, such as '1 run' and '2 runs'."""
    return f"{number} {word}{'' if number == 1 else 's'}"
