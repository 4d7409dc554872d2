"""One self-contained page: the answer, figures, sortable tables, what is missing, how to reproduce. Needs no network."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from ketscale.analysis import answers, catalogue
from ketscale.analysis.figures import read_table
from ketscale.errors import UserError
from ketscale.files import write_atomic

PAGE = "report.html.j2"
# Shared with Snakemake's own report, and so beside the rules.
CAPTIONS = Path(__file__).resolve().parents[2] / "report"
LARGEST_BYTES = 5_000_000

# The columns that the page shows of each table, with their heads; the CSV files have all of them.
SHOWN: dict[str, dict[str, str]] = {
    "scaling": {
        "study": "study", "value": "point", "batch": "batch", "workers": "workers", "step_s": "step (ms)",
        "step_low_s": "lowest (ms)", "step_high_s": "highest (ms)", "n": "n", "busy": "busy", "flag": "flag",
        "speedup_same": "speedup, same simulator", "speedup_best_serial": "speedup, best serial",
        "best_serial_reference": "best serial is", "efficiency": "efficiency", "karp_flatt": "serial fraction",
        "parity": "same numbers",
    },
    "accuracy": {
        "workload": "workload", "model": "model", "qubits": "qubits", "layers": "layers", "batch": "batch", "n": "n",
        "accuracy": "accuracy", "accuracy_low": "lowest", "accuracy_high": "highest", "chance": "guessing", "auc": "AUC", "f1": "F1",
        "loss": "loss", "epochs": "epochs", "difference": "difference to control", "difference_low": "95 % from",
        "difference_high": "to", "verdict": "verdict",
        "pooled": "pooled accuracy", "pooled_low": "pooled, 95 % from", "pooled_high": "pooled, to", "trials": "trials",
    },
    "parity": {
        "run": "run", "reference": "compared with", "precision": "precision", "steps": "steps",
        "difference": "largest relative difference", "limit": "limit", "held": "held",
    },
    "claims": {
        "id": "id", "statement": "claim", "number": "number", "study": "study", "estimator": "estimator",
        "rule": "rule", "smallest_effect": "smallest effect", "needs": "needs", "verdict": "verdict",
    },
    "completeness": {"run": "run", "studies": "studies", "state": "state", "why": "why", "code": "code"},
    "runs": {
        "workload": "workload", "model": "model", "qubits": "qubits", "layers": "layers", "batch": "batch",
        "simulator": "simulator", "place": "place", "protocol": "protocol", "seed": "seed",
        "split": "split by", "status": "status",
        "step_s": "step (ms)", "first_step_s": "first step (ms)", "samples_per_s": "samples/s",
        "test_accuracy": "accuracy", "test_loss": "loss", "epochs": "epochs", "peak_rss_bytes": "memory (MB)",
        "quiet": "quiet", "others_share": "others' share", "resumed": "resumed", "parameters": "parameters",
    },
}  # fmt: skip
FACTORS = {"(ms)": 1e3, "(MB)": 1e-6}


@dataclass(frozen=True)
class Cell:
    """A table's cell: what is shown, what it is sorted by, and its kind: number, long (text) or nothing."""

    text: str
    key: str
    kind: str


@dataclass(frozen=True)
class Table:
    """A table of the page: heads and cells, with its caption."""

    name: str
    caption: str
    heads: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Figure:
    """A figure of the page: its SVG as a data URI."""

    name: str
    caption: str
    uri: str


def build(config: Mapping[str, Any], tables: Path, figures: Path, out: Path) -> None:
    """Write the page from the CSV files in `tables` and the SVG files in `figures`.

    Raises:
        UserError: a table or figure is missing, or the page would exceed 5 MB.
    """
    read = {name: read_table(tables / f"{name}.csv") for name in catalogue.tables(config)}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    page = environment.get_template(PAGE).render(
        title=config["title"],
        answers=answers.sentences(read),
        questions=[(name, study["question"]) for name, study in config["studies"].items()],
        figures=[_figure(name, figures) for name in catalogue.figures(config)],
        tables={name: _table(name, read[name]) for name in SHOWN},
        **_state(read["completeness"]),
        provenance=_provenance(read["runs"]),
    )
    data = page.encode()
    if len(data) > LARGEST_BYTES:
        raise UserError(
            f"{out}: {len(data) / 1e6:.1f} MB, more than 5 MB; split the study into several configs"
        )
    write_atomic(out, data)


def caption(name: str) -> str:
    """The caption that Snakemake's own report shows too, as plain text."""
    path = CAPTIONS / f"{name}.rst"
    return " ".join(path.read_text().replace("``", "").split()) if path.exists() else ""


def _figure(name: str, folder: Path) -> Figure:
    try:
        data = (folder / f"{name}.svg").read_bytes()
    except FileNotFoundError:
        raise UserError(f"{folder / name}.svg: no such figure; run `ketscale figures` first") from None
    return Figure(name, caption(name), f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}")


def _table(name: str, table: pd.DataFrame) -> Table:
    heads = list(SHOWN[name].values())
    factors = [next((f for unit, f in FACTORS.items() if head.endswith(unit)), 1.0) for head in heads]
    chosen = table.reindex(columns=list(SHOWN[name])).itertuples(index=False)
    rows = [[_cell(value, factor) for value, factor in zip(row, factors, strict=True)] for row in chosen]
    return Table(name, caption(name), heads, rows)


def _cell(value: Any, factor: float) -> Cell:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Cell("", "", "")
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        text = re.sub(r"^results/runs/|/metrics\.json$", "", str(value))
        return Cell({"True": "yes", "False": "no"}.get(text, text), text, "long" if len(text) > 36 else "")
    number = float(value) * factor
    text = f"{number:,.0f}" if number == int(number) or abs(number) >= 1e4 else f"{number:,.4g}"
    return Cell(text, repr(number), "number")


def _state(completeness: pd.DataFrame) -> dict[str, Any]:
    """How many runs there are of each state, the ones that are not done, and the warnings."""
    runs = completeness[completeness["run"] != "*"]
    return {
        "counts": sorted(runs["state"].value_counts().items()),
        "absent": runs[runs["state"] != "done"][["run", "state", "why"]].fillna("").to_dict("records"),
        "warnings": completeness[completeness["run"] == "*"]["why"].tolist(),
    }


def _provenance(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Hardware, code, packages and features of the records; every value where they are mixed."""

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
