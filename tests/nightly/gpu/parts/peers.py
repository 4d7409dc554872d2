"""The simulators of others on the GPU, where they are installed, with `fused` beside them in every cell."""

from __future__ import annotations

from tests.nightly.gpu.measure import Part
from tests.nightly.gpu.parts.simulators import grids

NAMES = ("fused", "default.qubit", "jax", "default.qubit-jit", "tensorcircuit", "lightning.gpu")


def measure(part: Part) -> None:
    """In the order of the other part."""
    grids(part, NAMES)
