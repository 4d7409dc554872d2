"""The hybrid image model on the GPU and on one core, with the published simulator and with ours: claims 1.1, 1.2 and 1.9."""

from __future__ import annotations

from tests.nightly.gpu.measure import Part
from tests.nightly.gpu.parts.ranks import train


def measure(part: Part) -> None:
    """The study `devices`."""
    train(part, "one-gpu.yaml", names=("devices",))
