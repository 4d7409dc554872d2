"""From records to answers: the state of every run, tables, kinds of studies, figures, the report.

Imports nothing heavy, since Snakemake reads its config here at every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ketscale.analysis import figures, kinds
from ketscale.config import Config, load
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES

__all__ = ["of", "read"]


def read(path: Path | str) -> Config:
    """The config in a file, checked against the families and the kinds of studies.

    Raises:
        UserError: the file cannot be read; or names the setting that is wrong and what to do.
    """
    return of(load(path))


def of(settings: Mapping[str, Any], placed: bool = True) -> Config:
    """The config with these settings, checked against the families and the kinds of studies.

    placed: whether the settings say where things are on this machine; those of a config's `text` do not.

    Raises:
        UserError: names the setting that is wrong and what to do.
    """
    config = Config.of(settings, FAMILIES, placed)
    kinds.check(config)
    if names := {study.name for study in config.studies} & {figure.name for figure in figures.OVERVIEWS}:
        raise UserError(f"studies.{min(names)}: another figure has files of this name; rename the study")
    return config
