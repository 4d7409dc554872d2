"""The problem families: one line each. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ketscale.config import Config, Families, Family, Workload, load, resolved, suggestion
from ketscale.errors import UserError
from ketscale.problems.eeg.specification import EEG
from ketscale.problems.images.specification import IMAGES
from ketscale.problems.sentences.specification import SENTENCES

FAMILIES: Families = {
    family.name: family
    for family in (
        IMAGES,
        EEG,
        SENTENCES,
    )
}


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
    return resolved(kinds[kind], given, where)


def family_of(workload: Workload) -> Family:
    """The family of a workload's settings."""
    return next(family for family in FAMILIES.values() if type(workload) in family.workloads.values())
