"""The reference of the tables: their columns from the package, and what each means from columns.yaml."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from docs._generate.markdown import code, sentence, table

from ketscale import analysis
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.catalogue import CAPTIONS
from ketscale.analysis.points import metrics, size_axes
from ketscale.config import Config

HERE = Path(__file__).resolve().parent
MEANINGS: dict[str, dict[str, str]] = yaml.safe_load((HERE / "columns.yaml").read_text())


def page() -> str:
    """Every table with its columns, as for the default study."""
    config = default_study()
    parts = []
    for name, columns in written(config).items():
        parts += [f"## {name}.csv", CAPTIONS[name]]
        parts += [
            table(
                ("column", "meaning"), ((code(one), sentence(meaning(name, one, config))) for one in columns)
            )
        ]
    return "\n\n".join(parts)


def default_study() -> Config:
    """The study of config.yaml, with whatever runs exist."""
    given = yaml.safe_load((HERE.parents[1] / "config.yaml").read_text())
    return analysis.of({**given, "partial": True})


def written(config: Config) -> dict[str, list[str]]:
    """The columns of each table that the package writes, here without any run."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Analysed.of(config, Path(folder)).rows
        return {name: list(rows[name].columns) for name in CAPTIONS}


def meaning(name: str, column: str, config: Config) -> str:
    """What a column of a table means.

    Raises:
        KeyError: nobody has said it.
    """
    for meanings in (MEANINGS[name], MEANINGS["common"]):
        if column in meanings:
            return meanings[column]
    sizes = size_axes(config)
    if column in sizes:
        return f"Size of the model: {sizes[column].title}"
    split, _, metric = column.rpartition("_")
    if metric in metrics(config):
        return f"The metric {code(metric)} {f'on {split} data' if split else 'on test data, mean over seeds'}"
    raise KeyError(f"columns.yaml: {name}.{column} has no meaning")
