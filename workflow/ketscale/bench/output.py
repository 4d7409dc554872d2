"""A benchmark's results as JSON, CSV and Markdown, and as the lines of a terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ketscale.bench import models, training
from ketscale.bench.run import TIMED, Row
from ketscale.bench.selection import KNOWN, Cell
from ketscale.bench.summary import factors, lines

COLUMNS = tuple(field.name for field in fields(Row))
MODEL_COLUMNS = tuple(field.name for field in fields(models.Row))


def as_json(result: Mapping[str, Any]) -> bytes:
    """The whole result."""
    return (json.dumps(result, indent=1, allow_nan=False) + "\n").encode()


def as_csv(result: Mapping[str, Any]) -> bytes:
    """The rows, nothing where there is no number."""
    text = io.StringIO()
    columns = MODEL_COLUMNS if "model" in result["rows"][0] else COLUMNS
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in result["rows"]:
        writer.writerow({k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()})
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
    ceiling = f"matmul {top['matmul_gflops']:.0f} GFLOP/s, copy {top['copy_gbs']:.1f} GB/s, " if top else ""
    commit = (machine["commit"] or "unknown")[:10] + (", modified" if machine["dirty"] else "")
    return f"{machine['cpu']}, {machine['threads']} thread(s), fp32, {ceiling}commit {commit}"


def line(cell: Cell, rows: list[Row]) -> str:
    """One cell for the terminal."""
    return f"{cell}: " + "  ".join(f"{row.simulator} {_short(vars(row))}" for row in rows)


def _short(row: Mapping[str, Any]) -> str:
    if row["status"] != TIMED:
        return str(row["status"])
    return duration(row["median_s"])


def duration(value: float) -> str:
    """Seconds in words of three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def models_markdown(result: Mapping[str, Any]) -> bytes:
    """A table of training steps, a row for each model, size and simulator."""
    head = (
        "model",
        "qubits",
        "batch",
        "simulator",
        "step",
        "spread",
        "peak memory",
        "first step",
        "spans of a step",
    )
    table = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in result["rows"]:
        timed = row["status"] == TIMED
        peak = row["peak_bytes"]
        parts = [
            *(row[name] for name in ("model", "qubits", "batch", "simulator")),
            duration(row["median_s"]) if timed else row["status"],
            duration(row["spread_s"]) if timed else "",
            "" if peak is None else f"{peak / 2**20:.0f} MiB",
            "" if row["first_s"] is None else duration(row["first_s"]),
            ", ".join(f"{name} {duration(value)}" for name, value in (row["spans"] or {}).items()),
        ]
        table.append("| " + " | ".join(map(str, parts)) + " |")
    text = [f"Machine: {hardware(result['machine'])}.", "", *table, ""]
    return ("\n".join([*text, *(f"- {x}" for x in models.factors(result["rows"]))]) + "\n").encode()


def models_line(cell: training.Cell, rows: list[models.Row]) -> str:
    """One cell for the terminal."""
    said = []
    for row in rows:
        peak = "" if row.peak_bytes is None else f" ({row.peak_bytes / 2**20:.0f} MiB)"
        said.append(f"{row.simulator} {_short(vars(row))}{peak}")
    return f"{cell}: " + "  ".join(said)
