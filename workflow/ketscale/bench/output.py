"""A benchmark's results as JSON, CSV and Markdown, and as the lines of a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ketscale.bench.rows import TIMED, CircuitRow, ModelRow, best_s
from ketscale.bench.selection import KNOWN, Cell
from ketscale.bench.summary import factors, lines
from ketscale.files import csv_of
from ketscale.words import duration

if TYPE_CHECKING:
    from ketscale.bench.dynamics.pulses.rows import PulsesRow
    from ketscale.bench.dynamics.rows import DynamicsRow
    from ketscale.bench.layouts import LayoutRow


def as_json(result: Mapping[str, Any]) -> bytes:
    """The whole result."""
    return (json.dumps(result, indent=1, allow_nan=False) + "\n").encode()


def as_csv(result: Mapping[str, Any]) -> bytes:
    """The rows, nothing where there is no number."""
    rows = [
        {k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in result["rows"]
    ]
    return csv_of(rows, tuple(rows[0]))


def as_markdown(result: Mapping[str, Any]) -> bytes:
    """A table of the shorter median times, a row for each cell, with the machine above and the summary below."""
    rows = result["rows"]
    names = [name for name in KNOWN if any(row["simulator"] == name for row in rows)]
    speedups = {f.cell: f"{f.speedup:.3g}x ({f.peer})" for f in factors(rows)}
    cells: dict[Cell, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(Cell.of(row), {})[row["simulator"]] = time_or_status(row)
    table = markdown_table(
        [*Cell._fields, *names, "fused over fastest peer"],
        [
            [*cell, *(shown.get(name, "") for name in names), speedups.get(cell, "")]
            for cell, shown in cells.items()
        ],
    )
    return document(result, table, summary(result))


def summary(result: Mapping[str, Any]) -> list[str]:
    """What the simulators were checked against, and the benchmark in a few numbers."""
    return [f"checked against {result['reference']} in double precision", *lines(result["rows"])]


def hardware(machine: Mapping[str, Any]) -> str:
    """Processors, threads, ceiling and commit in one line."""
    gpu = f"{machine['gpu']['name']}, " if machine["gpu"] else ""
    rates = [
        f"{name.partition('_')[0]} {rate:.4g} {UNITS[name.partition('_')[2]]}, "
        for name, rate in machine["ceiling"].items()
        if rate is not None
    ]
    commit = (machine["commit"] or "unknown")[:10] + (", modified" if machine["dirty"] else "")
    return f"{gpu}{machine['cpu']}, {machine['threads']} thread(s), {''.join(rates)}commit {commit}"


UNITS = {"gflops": "GFLOP/s", "gbs": "GB/s"}


def line(cell: object, rows: Sequence[CircuitRow | DynamicsRow | PulsesRow]) -> str:
    """One cell for the terminal."""
    return f"{cell}: " + "  ".join(f"{row.simulator} {time_or_status(vars(row))}" for row in rows)


def time_or_status(row: Mapping[str, Any]) -> str:
    """The shorter time of a row; where nothing was timed, why."""
    if row["status"] != TIMED:
        return str(row["status"])
    seconds = best_s(row)
    assert seconds is not None
    return duration(seconds)


def models_markdown(result: Mapping[str, Any]) -> bytes:
    """A table of training steps, a row for each model, size and simulator."""
    from ketscale.bench import models

    head = (
        "model",
        "qubits",
        "batch",
        "simulator",
        "step",
        "interquartile range",
        "as a graph",
        "peak memory",
        "torch operands",
        "first step",
        "spans of a step",
    )
    table = []
    for row in result["rows"]:
        timed = row["status"] == TIMED
        cells = [
            *(row[name] for name in ("model", "qubits", "batch", "simulator")),
            duration(row["median_s"]) if timed else row["status"],
            duration(row["iqr_s"]) if timed else "",
            "" if row["graph_median_s"] is None else duration(row["graph_median_s"]),
            *("" if n is None else f"{n / 2**20:.0f} MiB" for n in (row["peak_bytes"], row["operand_bytes"])),
            "" if row["first_s"] is None else duration(row["first_s"]),
            ", ".join(f"{name} {duration(value)}" for name, value in (row["spans"] or {}).items()),
        ]
        table.append(cells)
    return document(result, markdown_table(head, table), models.factors(result["rows"]))


def layouts_line(cell: object, rows: Sequence[LayoutRow]) -> str:
    """One cell for the terminal."""
    return f"{cell}: " + "  ".join(f"r{row.ranks}t{row.threads} {duration(row.median_s)}" for row in rows)


def layouts_markdown(result: Mapping[str, Any]) -> bytes:
    """A table of training steps, a row for each model, size and layout."""
    from ketscale.bench import layouts

    names = ("model", "qubits", "batch", "simulator", "ranks", "threads")
    table = [
        [*(row[name] for name in names), duration(row["median_s"]), duration(row["iqr_s"])]
        for row in result["rows"]
    ]
    head = (*names, "step", "interquartile range")
    return document(result, markdown_table(head, table), layouts.summary(result["rows"]))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]


def document(result: Mapping[str, Any], table: list[str], summary: Iterable[str]) -> bytes:
    """A table with the machine above it and the summary below."""
    text = [f"Machine: {hardware(result['machine'])}.", "", *table, "", *(f"- {line}" for line in summary)]
    return ("\n".join(text) + "\n").encode()


def models_line(cell: tuple[Any, ...], rows: list[ModelRow]) -> str:
    """One cell for the terminal."""
    said = []
    for row in rows:
        peak = "" if row.peak_bytes is None else f" ({row.peak_bytes / 2**20:.0f} MiB)"
        said.append(f"{row.simulator} {time_or_status(vars(row))}{peak}")
    return f"{cell}: " + "  ".join(said)
