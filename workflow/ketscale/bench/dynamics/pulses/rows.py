"""What a benchmark of pulses says of a simulator in a cell, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ketscale.bench import output
from ketscale.bench.dynamics.pulses.selection import PUBLISHED, Cell
from ketscale.bench.rows import TIMED
from ketscale.words import duration


@dataclass(frozen=True)
class PulsesRow:
    """A simulator in a cell. Times are of the infidelity of all columns, and its gradient.

    reason: why it was not timed.
    computes: 'value and gradient', 'value and gradient by pulses' of what cannot differentiate circuits, or 'value'.
    steps: None for adaptive integrators.
    first_s: the first call in this process, compiling included.
    median_s, spread_s: of the later calls, median and interquartile range over `repeats`.
    error: the larger of the distances of value and gradient from the reference's, each as a share of its norm.
    matches: those of `PUBLISHED` that compute the same as this, and have this error or a larger one in this cell.
    peak_bytes: largest resident memory of the process until its first call ended. A simulator's own is that of a command
        with no other simulator.
    """

    problem: str
    qubits: int
    levels: int
    simulator: str
    status: str
    reason: str | None = None
    computes: str | None = None
    steps: int | None = None
    first_s: float | None = None
    median_s: float | None = None
    spread_s: float | None = None
    repeats: int | None = None
    error: float | None = None
    matches: tuple[str, ...] = ()
    peak_bytes: int | None = None


def factors(rows: list[dict[str, Any]]) -> list[str]:
    """How many times faster the fastest simulator that matches a published one is, by cell."""
    lines = []
    for row in rows:
        if row["simulator"] not in PUBLISHED or row["status"] != TIMED:
            continue
        matched = [
            other
            for other in rows
            if Cell.of(other) == Cell.of(row)
            and other["status"] == TIMED
            and row["simulator"] in other["matches"]
        ]
        if matched:
            best = min(matched, key=lambda other: other["median_s"])
            lines.append(
                f"{Cell.of(row)}: {best['simulator']} takes {duration(best['median_s'])} (error {best['error']:.1e}), "
                f"{row['simulator']} {row['median_s'] / best['median_s']:.3g} times that (error {row['error']:.1e})"
            )
    return lines


def as_markdown(result: Mapping[str, Any]) -> bytes:
    """A table with a row for each cell and simulator."""
    head = (
        *Cell._fields, "simulator", "computes", "steps", "time", "interquartile range", "first call", "error", "matches",
        "peak memory",
    )  # fmt: skip
    table = []
    for row in result["rows"]:
        timed, first = row["status"] == TIMED, row["first_s"]
        table.append(
            [
                *Cell.of(row),
                row["simulator"],
                row["computes"] or "",
                row["steps"] or "",
                output.time_or_status(row),
                duration(row["spread_s"]) if timed else "",
                "" if first is None else duration(first),
                "" if row["error"] is None else f"{row['error']:.1e}",
                ", ".join(row["matches"]),
                "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f} MiB",
            ]
        )
    return output.document(result, output.markdown_table(head, table), factors(result["rows"]))
