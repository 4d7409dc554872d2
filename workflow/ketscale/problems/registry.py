"""The problem families, one line each. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ketscale.config import Config, Families, Family, Workload, at, load, resolved, workload_kinds
from ketscale.errors import UserError
from ketscale.words import suggestion

# A family is the folder of this name next to this file; its specification.py defines FAMILY.
NAMES = (
    "images",
    "rows",
    "eeg",
    "sentences",
    "control",
    "pulses",
)


FAMILIES: Families = {name: import_module(f"ketscale.problems.{name}.specification").FAMILY for name in NAMES}


def read_config(path: Path | str) -> Config:
    """The config in a file, checked against the families.

    Raises:
        UserError: the file cannot be read, or a setting is wrong; the error names it and says what to do.
    """
    return Config.of(load(path), FAMILIES)


def workload_of(block: Mapping[str, Any], where: str) -> Workload:
    """The settings of a workload from its block in a config, which gives its kind.

    where: the block's path in the config, for errors.

    Raises:
        UserError: a setting is wrong; the error names it and says what to do.
    """
    kinds = workload_kinds(FAMILIES.values())
    kind = block.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise UserError(f"{where}.kind: no workload is called {kind}{suggestion(str(kind), list(kinds))}")
    workload = resolved(kinds[kind], block, where)
    for fault in (*workload.faults(), *workload.misplaced()):
        raise UserError(at(where, fault))
    return workload


def family_of(workload: Workload) -> Family:
    """The family of a workload's settings, with the metrics of its task."""
    one = next(family for family in FAMILIES.values() if type(workload) in family.workloads.values())
    return one.for_task(workload)
