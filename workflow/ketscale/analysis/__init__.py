"""From records to answers: what became of every run, tables, kinds of studies, figures, the report.

Imports nothing heavy: every start of Snakemake reads its config here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ketscale.analysis import kinds
from ketscale.config import Config, load
from ketscale.problems.registry import FAMILIES

__all__ = ["of", "read"]


def read(path: Path | str) -> Config:
    """The config in a file, checked against the families and the kinds of studies.

    Raises:
        UserError: it cannot be read, or names the setting that is wrong and what to do.
    """
    return of(load(path))


def of(given: Mapping[str, Any], placed: bool = True) -> Config:
    """The config with these settings, checked against the families and the kinds of studies.

    placed: whether they say where things are on this machine; a config's `text` does not.

    Raises:
        UserError: names the setting that is wrong and what to do.
    """
    config = Config.of(given, FAMILIES, placed)
    kinds.check(config)
    return config
