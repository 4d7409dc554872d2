"""Durations in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Seconds with a fitting unit and three digits, such as '2.5 ms'."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        # What three digits round up to the unit has it: 0.9996 s is '1 s', not '1e+03 ms'.
        if seconds >= size * (1 - 5e-4):
            number = seconds / size
            return f"{number:,.0f} {unit}" if number >= 999.5 else f"{number:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
