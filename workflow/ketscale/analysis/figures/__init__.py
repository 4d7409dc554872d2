"""The figures of a study, each drawn from the tables and saved with the data behind it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ketscale.analysis import catalogue
from ketscale.analysis.figures import break_even, learning, mistakes, spans, speed, strategies, style, sweeps
from ketscale.errors import UserError

DRAWERS: dict[str, style.Drawer] = {
    "simulators": speed.simulators,
    "strategies": strategies.strategies,
    "spans": spans.spans,
    "strong": speed.strong,
    "weak": speed.weak,
    "break-even": break_even.break_even,
    "batch": sweeps.batch,
    "depth": sweeps.depth,
    "qubits": sweeps.qubits,
    "features": speed.features,
    "mistakes": mistakes.mistakes,
    "learning": learning.learning,
}


def draw(config: Mapping[str, Any], tables: Path, out: Path) -> None:
    """Write out/NAME.{svg,png,pdf,csv} for every figure of the catalogue, from the CSV files in `tables`.

    Raises:
        UserError: a table is missing.
    """
    style.theme()
    names = ("runs", "scaling", "accuracy", "spans", "history", "completeness")
    read = style.Tables(dict(config), **{name: read_table(tables / f"{name}.csv") for name in names})
    for name in catalogue.figures(config):
        figure, data = DRAWERS[name](read)
        style.save(figure, data, name, out)


def read_table(path: Path) -> pd.DataFrame:
    """A table of `tables.collect`, names kept as text ('none' is a simulator, not a missing value).

    Raises:
        UserError: there is no such table.
    """
    try:
        return pd.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such table; run `ketscale collect` first") from None
