"""The ready-made studies of `workflow/studies`."""

from __future__ import annotations

from pathlib import Path

from ketscale import analysis
from ketscale.config import Config, load
from tests import ROOT

FOLDER = ROOT / "workflow" / "studies"
# The studies that are laid over another.
OVER = {FOLDER / f"{name}-gpu.yaml": FOLDER / f"{name}.yaml" for name in ("paradox", "control", "pulses")}
OVER[FOLDER / "transformer-cores.yaml"] = FOLDER / "transformer.yaml"
WHOLE = sorted(set(FOLDER.glob("*.yaml")) - set(OVER))


def small(path: Path) -> Config:
    """A ready-made study with two splits at most of each data set, and with the first of what a search would draw."""
    given = load(path)
    for block in given["workloads"].values():
        if "split_seeds" in block:
            block["split_seeds"] = block["split_seeds"][:2]
    for block in given["protocols"].values():
        if block.pop("search", None):
            block["learning_rate"] = 0.01
    return analysis.of(given)
