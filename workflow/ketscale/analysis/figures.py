"""The figures of a study: each is drawn from the tables and saved with its data and caption."""

from __future__ import annotations

from pathlib import Path

from ketscale.analysis import catalogue, stamp
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.config import Config


def draw(config: Config, results: Path) -> None:
    """Write figures/NAME.{svg,png,pdf,csv,rst} for every figure of the catalogue, and their stamp, from the tables.

    Args:
        config: the config of the studies.
        results: the folder of all results.

    Raises:
        UserError: the tables are not those of this config and its records; see `stamp.tables`.
    """
    style.theme()
    tables = stamp.tables(config, results)
    inputs = Inputs.parse(config, tables.by_name())
    made: dict[str, bytes] = {}
    for figure in catalogue.figures_of(config):
        made |= {f"{figure.name}.{form}": data for form, data in style.files(figure.draw, inputs).items()}
        made[f"{figure.name}.rst"] = f"{figure.caption}\n".encode()
    stamp.write_figures(results, made, tables)
