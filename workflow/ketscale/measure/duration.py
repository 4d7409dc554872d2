"""Durations in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Seconds with a fitting unit and three digits, such as '2.5 ms'."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size * (1 - 1e-9):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
