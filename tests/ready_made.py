"""The ready-made studies of `workflow/studies`."""

from __future__ import annotations

from pathlib import Path

from ketscale import analysis
from ketscale.config import Config, load
from tests import ROOT

FOLDER = ROOT / "workflow" / "studies"
ALL = sorted(FOLDER.glob("*.yaml"))
# Studies that are laid over no other.
WHOLE = [path for path in ALL if "\nover:" not in path.read_text()]


def small(path: Path) -> Config:
    """A ready-made study with two splits at most of each data set, and with the first of what a search would draw."""
    arguments = load(path)
    for block in arguments["workloads"].values():
        if "split_seeds" in block:
            block["split_seeds"] = block["split_seeds"][:2]
    for block in arguments["protocols"].values():
        if block.pop("search", None):
            block["learning_rate"] = 0.01
    return analysis.of(arguments)
