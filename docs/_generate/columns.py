"""The reference of the tables: their columns and what each means, as they are declared."""

from __future__ import annotations

from pathlib import Path

import yaml
from docs._generate.markdown import code, sentence, table

from ketscale import analysis
from ketscale.analysis import compare
from ketscale.analysis.columns import TABLES
from ketscale.config import Config

HERE = Path(__file__).resolve().parent


def page() -> str:
    """Every table with its columns, as for the default study."""
    config = default_study()
    parts = []
    for one in TABLES.values():
        rows = ((code(c.name), c.unit, sentence(c.meaning)) for c in one.columns(config))
        parts += [f"## {one.name}.csv", one.caption, table(("column", "unit", "meaning"), rows)]
    compared = ((code(name), sentence(meaning)) for name, meaning in compare.COLUMNS.items())
    caption = "A row for each measure of a point in the folders A and B; `ketscale compare --csv` and `--json` write it."
    parts += ["## compared.csv", caption, table(("column", "meaning"), compared)]
    return "\n\n".join(parts)


def default_study() -> Config:
    """The study of config.yaml."""
    return analysis.of(yaml.safe_load((HERE.parents[1] / "config.yaml").read_text()))
