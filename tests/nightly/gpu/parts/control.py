"""Batches of control tasks on the GPU and on the cores beside it: claim 4.6."""

from __future__ import annotations

from tests.nightly.gpu.measure import Part
from tests.nightly.gpu.parts.ranks import train


def measure(part: Part) -> None:
    """The study `batch-gpu`."""
    train(part, "control-gpu.yaml", names=("batch-gpu",))
