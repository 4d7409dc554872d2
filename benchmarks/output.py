"""A benchmark's results as JSON, CSV and Markdown, and as the lines of a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.runner import Benchmark, Result, Row
from ketscale.files import csv_of


def as_json(result: Result) -> bytes:
    """The whole result."""
    return (json.dumps(result, indent=1, allow_nan=False) + "\n").encode()


def as_csv(result: Result) -> bytes:
    """The rows, nothing where there is no number."""
    rows = [
        {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()}
        for row in result["rows"]
    ]
    return csv_of(rows, tuple(rows[0]))


def as_markdown(benchmark: type[Benchmark], result: Result) -> bytes:
    """The benchmark's table with the machine above it and the summary below."""
    lines = [f"Machine: {hardware(result['machine'])}.", "", *benchmark.table(result["rows"]), ""]
    return ("\n".join([*lines, *(f"- {line}" for line in summary(benchmark, result))]) + "\n").encode()


def summary(benchmark: type[Benchmark], result: Result) -> list[str]:
    """What the subjects were checked against, and the benchmark in a few lines."""
    reference = result["reference"]
    notes = [f"checked against {reference} in double precision"] if reference else []
    return [*notes, *benchmark.summary(result["rows"])]


def hardware(machine: Mapping[str, Any]) -> str:
    """Processors, threads, ceilings and commit in one line."""
    gpu = f"{machine['gpu']['name']}, " if machine["gpu"] else ""
    rates = [
        f"{name.partition('_')[0]} {rate:.4g} GFLOP/s, "
        for name, rate in machine["ceiling"].items()
        if rate is not None
    ]
    commit = (machine["commit"] or "unknown")[:10] + (", modified" if machine["dirty"] else "")
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    return f"{gpu}{machine['cpu']}, {threads}, {''.join(rates)}commit {commit}"


def line(benchmark: type[Benchmark], case: object, rows: Sequence[Row]) -> str:
    """A case for the terminal."""
    return f"{case}: " + "  ".join(f"{row[benchmark.subject]} {benchmark.said(row)}" for row in rows)
