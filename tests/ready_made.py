"""The ready-made studies of `workflow/studies`."""

from __future__ import annotations

from tests import ROOT

FOLDER = ROOT / "workflow" / "studies"
# The studies that are laid over another.
OVER = {FOLDER / f"{name}-gpu.yaml": FOLDER / f"{name}.yaml" for name in ("paradox", "control", "pulses")}
OVER[FOLDER / "transformer-cores.yaml"] = FOLDER / "transformer.yaml"
WHOLE = sorted(set(FOLDER.glob("*.yaml")) - set(OVER))
