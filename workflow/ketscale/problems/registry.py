"""The problem families, a line each. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ketscale.config import Config, Families, Family, Workload, at, load, resolved, suggestion
from ketscale.errors import UserError

# A family is the folder of this name beside this file; its specification.py defines FAMILY.
NAMES = (
    "images",
    "eeg",
    "sentences",
)
FAMILIES: Families = {name: import_module(f"ketscale.problems.{name}.specification").FAMILY for name in NAMES}


def read_config(path: Path | str) -> Config:
    """The config in a file, checked against the families.

    Raises:
        UserError: it cannot be read, or names the setting that is wrong and what to do.
    """
    return Config.of(load(path), FAMILIES)


def workload_of(given: Mapping[str, Any], where: str) -> Workload:
    """The settings of a workload, its kind among them.

    Raises:
        UserError: names the setting, what is wrong and what to do.
    """
    kinds = {kind: settings for family in FAMILIES.values() for kind, settings in family.workloads.items()}
    kind = given.get("kind")
    if kind not in kinds:
        raise UserError(
            f"{where}.kind: no kind of workload is called {kind}{suggestion(str(kind), list(kinds))}"
        )
    workload = resolved(kinds[kind], given, where)
    for fault in (*workload.faults(), *workload.misplaced()):
        raise UserError(at(where, fault))
    return workload


def family_of(workload: Workload) -> Family:
    """The family of a workload's settings."""
    return next(family for family in FAMILIES.values() if type(workload) in family.workloads.values())
