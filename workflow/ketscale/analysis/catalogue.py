"""Which tables and figures a config leads to; imported by the Snakefile, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Each NAME is results/tables/NAME.csv.
TABLES = ("runs", "completeness", "scaling", "accuracy", "parity", "spans", "history", "claims")

# Each figure NAME is results/figures/NAME.{svg,png,pdf,csv}.
FORMATS = ("svg", "png", "pdf", "csv")

# Figures in the report's order, with the kind of study that each needs (None: always drawn).
FIGURES: dict[str, str | None] = {
    "simulators": "simulator",
    "strategies": None,
    "spans": None,
    "strong": "strong",
    "weak": "weak",
    "break-even": "break-even",
    "batch": "batch",
    "depth": "depth",
    "qubits": "qubits",
    "features": "features",
    "mistakes": "mistakes",
    "learning": "accuracy",
}


def figures(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the figures that the config's studies lead to, in the report's order."""
    kinds = {study["kind"] for study in config["studies"].values()}
    return tuple(name for name, kind in FIGURES.items() if kind is None or kind in kinds)


def tables(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the tables; every config has them all, empty where nothing was asked."""
    return TABLES
