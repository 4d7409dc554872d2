"""A benchmark's results as JSON, CSV and Markdown, and as the lines of a terminal."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ketscale.bench.run import TIMED, Row
from ketscale.bench.selection import KNOWN, Cell
from ketscale.bench.summary import factors, lines

COLUMNS = tuple(field.name for field in fields(Row))


def as_json(result: Mapping[str, Any]) -> bytes:
    """The whole result."""
    return (json.dumps(result, indent=1, allow_nan=False) + "\n").encode()


def as_csv(result: Mapping[str, Any]) -> bytes:
    """The rows, nothing where there is no number."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(result["rows"])
    return text.getvalue().encode()


def as_markdown(result: Mapping[str, Any]) -> bytes:
    """A table of median times, a row for each cell, with the machine above it and the summary below."""
    rows = result["rows"]
    names = [name for name in KNOWN if any(row["simulator"] == name for row in rows)]
    speedups = {f.cell: f"{f.speedup:.3g}x ({f.peer})" for f in factors(rows)}
    cells: dict[Cell, dict[str, str]] = {}
    for row in rows:
        cell = Cell(row["ansatz"], row["qubits"], row["batch"])
        cells.setdefault(cell, {})[row["simulator"]] = _short(row)
    table = [
        "| " + " | ".join(["ansatz", "qubits", "batch", *names, "fused over fastest peer"]) + " |",
        "|---" * (4 + len(names)) + "|",
    ]
    for cell, shown in cells.items():
        parts = [*map(str, cell), *(shown.get(name, "") for name in names), speedups.get(cell, "")]
        table.append("| " + " | ".join(parts) + " |")
    text = [f"Machine: {hardware(result['machine'])}.", "", *table, "", *(f"- {x}" for x in lines(rows))]
    return ("\n".join(text) + "\n").encode()


def hardware(machine: Mapping[str, Any]) -> str:
    """Processor, threads, ceiling and commit in one line."""
    top = machine["ceiling"]
    commit = (machine["commit"] or "unknown")[:10] + (", modified" if machine["dirty"] else "")
    return (
        f"{machine['cpu']}, {machine['threads']} thread(s), fp32, matmul {top['matmul_gflops'] or math.nan:.0f} GFLOP/s, "
        f"copy {top['copy_gbs']:.1f} GB/s, commit {commit}"
    )


def line(cell: Cell, rows: list[Row]) -> str:
    """One cell for the terminal."""
    return f"{cell}: " + "  ".join(f"{row.simulator} {_short(vars(row))}" for row in rows)


def _short(row: Mapping[str, Any]) -> str:
    if row["status"] != TIMED:
        return str(row["status"])
    value = row["median_s"]
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"
