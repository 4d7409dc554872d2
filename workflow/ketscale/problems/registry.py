"""The problem families: one line each. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from ketscale.config import Config, Families, load
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
