"""The report, a self-contained page: answer, figures, sortable tables, missing runs, reproduction. Works offline."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from ketscale.analysis import catalogue
from ketscale.analysis.drawing.inputs import read_table
from ketscale.analysis.kinds import kind
from ketscale.analysis.points import metrics, size_axes
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.files import clear, write_atomic
from ketscale.grid import RECORD, RUNS

PAGE = "report.html.j2"
LARGEST_BYTES = 5_000_000
FACTORS = {"(ms)": 1e3, "(MB)": 1e-6}


def shown(config: Config) -> dict[str, dict[str, str]]:
    """The columns of each table that the page shows, with their headings; the CSV files have all columns."""
    sizes = {name: axis.title for name, axis in size_axes(config).items()}
    figures = metrics(config)
    return {
        "scaling": {
            "study": "study", "value": "point", "batch": "batch", "workers": "workers", "step_s": "step (ms)",
            "circuit_s": "circuits alone (ms)", "step_low_s": "lowest (ms)", "step_high_s": "highest (ms)", "n": "n", "timed_steps": "steps timed",
            "busy": "busy", "timed_out": "timed out", "flag": "flag",
            "speedup_same": "speedup, same simulator", "speedup_best_serial": "speedup, best serial",
            "best_serial_reference": "best serial is", "efficiency": "efficiency", "karp_flatt": "serial fraction",
            "parity": "same numbers",
        },
        "laws": {
            "study": "study", "model": "model", "size": "size", "batch": "batch", "simulator": "simulator",
            "series": "series", "law": "law", "verdict": "verdict", "parameter": "parameter", "estimate": "estimate",
            "low": "95 % from", "high": "to", "unit": "unit", "n": "n", "points": "points", "held_out": "held out",
            "predicted_s": "predicted (ms)", "measured_s": "measured (ms)", "error": "error", "regimes": "regimes",
            "reason": "reason",
        },
        "quality": {
            "workload": "workload", "model": "model", **sizes, "batch": "batch", "n": "n",
            "metric": "metric", "value": "value", "value_low": "lowest", "value_high": "highest", "chance": "chance",
            **{name: name for name in figures}, "epochs": "epochs",
            "difference": "difference to control", "difference_low": "95 % from", "difference_high": "to",
            "verdict": "verdict", "pooled": "pooled", "pooled_low": "pooled, 95 % from", "pooled_high": "pooled, to",
            "pooled_count": "samples",
        },
        "parity": {
            "run": "run", "reference": "compared with", "precision": "precision", "steps": "steps",
            "difference": "largest relative difference", "limit": "limit", "held": "held",
        },
        "claims": {
            "id": "id", "statement": "claim", "number": "number", "study": "study", "estimator": "estimator",
            "rule": "rule", "smallest_effect": "smallest effect", "needs": "needs", "verdict": "verdict",
            "effect": "effect", "low": "95 % from", "high": "to", "n": "n", "hardware": "hardware", "reason": "reason",
        },
        "completeness": {"run": "run", "studies": "studies", "state": "state", "why": "why", "code": "code"},
        "runs": {
            "workload": "workload", "model": "model", **sizes, "batch": "batch",
            "simulator": "simulator", "layout": "layout", "protocol": "protocol", "seed": "seed",
            "split": "split by", "shared": "samples in two parts", "status": "status",
            "step_s": "step (ms)", "first_step_s": "first step (ms)", "samples_per_s": "samples/s",
            **{f"test_{name}": f"test {name}" for name in figures}, "epochs": "epochs", "peak_rss_bytes": "memory (MB)",
            "quiet": "quiet", "others_share": "others' share", "resumed": "resumed", "parameters": "parameters",
        },
    }  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A table's cell: the text shown, the key that it is sorted by, and its kind: number, long (text) or empty."""

    text: str
    key: str
    kind: str


@dataclass(frozen=True)
class Table:
    """A table of the page: headings, cells and caption."""

    name: str
    caption: str
    heads: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Picture:
    """A figure of the page: its SVG as a data URI."""

    name: str
    title: str
    caption: str
    uri: str


def build(config: Config, results: Path) -> None:
    """Write report.html from the CSV files in tables/ and the SVG files in figures/ of the results folder.

    Raises:
        UserError: a table or figure is missing, or the page would exceed 5 MB.
    """
    read = {name: read_table(results / "tables" / f"{name}.csv") for name in catalogue.TABLES}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    page = environment.get_template(PAGE).render(
        title=config.title,
        results=config.results,
        answers=list(read["answers"][["study", "question", "answer"]].itertuples(index=False)),
        figures=[_figure(figure, results / "figures") for figure in catalogue.figures_of(config)],
        tables={
            name: _table(name, heads, read[name], config.results) for name, heads in shown(config).items()
        },
        **_state(read["completeness"]),
        provenance=_provenance(read["runs"]),
    )
    data, out = page.encode(), results / "report.html"
    if len(data) > LARGEST_BYTES:
        raise UserError(
            f"{out}: {len(data) / 1e6:.1f} MB, more than 5 MB; split the study into several configs"
        )
    clear(results)
    write_atomic(out, data)


def _figure(figure: kind.Figure, folder: Path) -> Picture:
    try:
        data = (folder / f"{figure.name}.svg").read_bytes()
    except FileNotFoundError:
        raise UserError(f"{folder / figure.name}.svg: no such figure; run `ketscale figures` first") from None
    uri = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
    return Picture(figure.name, figure.title, figure.caption, uri)


def _table(name: str, columns: dict[str, str], table: pd.DataFrame, results: str) -> Table:
    # Columns without any value are left out, such as a metric that the runs lack.
    known = [column for column in columns if column in table and (table.empty or table[column].notna().any())]
    heads = [columns[column] for column in known]
    factors = [next((f for unit, f in FACTORS.items() if head.endswith(unit)), 1.0) for head in heads]
    rows = [
        [_cell(value, factor, results) for value, factor in zip(row, factors, strict=True)]
        for row in table[known].itertuples(index=False)
    ]
    return Table(name, catalogue.CAPTIONS[name], heads, rows)


def _cell(value: Any, factor: float, results: str) -> Cell:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Cell("", "", "")
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        text = str(value).removeprefix(f"{results}/{RUNS}/").removesuffix(f"/{RECORD}")
        return Cell({"True": "yes", "False": "no"}.get(text, text), text, "long" if len(text) > 36 else "")
    number = float(value) * factor
    text = f"{number:,.0f}" if number == int(number) or abs(number) >= 1e4 else f"{number:,.4g}"
    return Cell(text, repr(number), "number")


def _state(completeness: pd.DataFrame) -> dict[str, Any]:
    """The number of runs in each state, the runs that are not completed, and the warnings."""
    runs = completeness[completeness["run"] != "*"]
    return {
        "counts": sorted(runs["state"].value_counts().items()),
        "absent": runs[runs["state"] != "completed"][["run", "state", "why"]].fillna("").to_dict("records"),
        "warnings": completeness[completeness["run"] == "*"]["why"].tolist(),
    }


def _provenance(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Hardware, code, packages and features of the records, with all values if records differ."""

    def distinct(column: str) -> list[str]:
        return sorted({str(value) for value in runs[column].dropna()})

    found = {
        "hardware": distinct("hardware"),
        "hosts": distinct("host"),
        "code": distinct("code"),
        "MPI": distinct("mpi_library"),
        "features": [f"{value[:16]}…" for value in distinct("features_hash")],
        "packages": distinct("packages"),
    }
    hours = pd.to_numeric(runs["node_hours"]).sum()
    return {**{name: values for name, values in found.items() if values}, "node-hours": [f"{hours:.3g}"]}
