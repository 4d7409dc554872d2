"""What a benchmark of dynamics says of a propagator in a cell, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ketscale.bench import output
from ketscale.bench.dynamics.selection import Cell
from ketscale.bench.rows import TIMED
from ketscale.words import duration


@dataclass(frozen=True)
class DynamicsRow:
    """A propagator in a cell. Times are of the whole batch: all overlaps with the target, and their gradient by all controls.

    reason: why it was not timed.
    computes: 'value and gradient', or 'value' of what has no gradients.
    first_s: the first call in this process, compiling included; not projected.
    median_s, spread_s: of the later calls, median and interquartile range over `repeats`.
    projected_from: tasks that were timed, where it takes one after the other and their time is multiplied.
    error: largest distance of overlaps and gradient from the reference's, each as a share of its norm.
    gflops, fraction: of the compiled propagators, their arithmetic per second, and as a share of a matrix product's in
        double precision, timed in turn with them.
    """

    problem: str
    qubits: int
    segments: int
    batch: int
    simulator: str
    status: str
    reason: str | None = None
    computes: str | None = None
    first_s: float | None = None
    median_s: float | None = None
    spread_s: float | None = None
    repeats: int | None = None
    projected_from: int | None = None
    error: float | None = None
    gflops: float | None = None
    fraction: float | None = None


def factors(rows: list[dict[str, Any]]) -> list[str]:
    """How many times faster `exact` is than each other propagator that computes the same, by cell."""
    lines = []
    for row in rows:
        if row["simulator"] != "exact" or row["status"] != TIMED:
            continue
        others = [
            f"{other['simulator']} {other['median_s'] / row['median_s']:.3g}x"
            for other in rows
            if Cell.of(other) == Cell.of(row) and other["status"] == TIMED and other is not row
        ]
        lines.append(
            f"{Cell.of(row)}: exact takes {duration(row['median_s'])}; times of that: {', '.join(others) or 'none'}"
        )
    return lines


def as_markdown(result: Mapping[str, Any]) -> bytes:
    """A table with a row for each cell and propagator."""
    head = (
        *Cell._fields,
        "simulator",
        "computes",
        "time",
        "interquartile range",
        "a task",
        "error",
        "of the ceiling",
    )
    table = []
    for row in result["rows"]:
        timed = row["status"] == TIMED
        projected = f" (from {row['projected_from']} tasks)" if row["projected_from"] else ""
        table.append(
            [
                *Cell.of(row),
                row["simulator"],
                row["computes"] or "",
                output.time_or_status(row) + projected,
                duration(row["spread_s"]) if timed else "",
                duration(row["median_s"] / row["batch"]) if timed else "",
                "" if row["error"] is None else f"{row['error']:.1e}",
                "" if row["fraction"] is None else f"{100 * row['fraction']:.0f} %",
            ]
        )
    return output.document(result, output.markdown_table(head, table), factors(result["rows"]))
