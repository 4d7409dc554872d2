"""The figures of a study: each is drawn from the tables and saved with its data and caption."""

from __future__ import annotations

from pathlib import Path

from ketscale.analysis import catalogue
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.config import Config
from ketscale.files import clear, write_atomic


def draw(config: Config, results: Path) -> None:
    """Write figures/NAME.{svg,png,pdf,csv,rst} for every figure of the catalogue, from the CSV files in tables/.

    Args:
        config: the config of the studies.
        results: the folder of all results.

    Raises:
        UserError: a table is missing.
    """
    style.theme()
    clear(results / "figures")
    inputs = Inputs.read(config, results / "tables")
    for figure in catalogue.figures_of(config):
        drawing, data = figure.draw(inputs)
        style.save(drawing, data, figure.name, results / "figures")
        write_atomic(results / "figures" / f"{figure.name}.rst", f"{figure.caption}\n".encode())
