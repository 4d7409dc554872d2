"""A plugin of pytest: each circuit on ketscale.fused ends with a channel that does nothing, so that it has a density matrix."""

from __future__ import annotations

from typing import Any

import pennylane as qml
from pennylane.devices import ExecutionConfig
from pennylane.transforms.core import CompilePipeline

from ketscale.interop.device import NAME, FusedDevice

IDEAL = FusedDevice.preprocess_transforms


def noisy(self: Any, execution_config: ExecutionConfig | None = None) -> CompilePipeline:
    """The device's transforms, after that of the channel."""
    pipeline = CompilePipeline()
    pipeline.add_transform(qml.noise.insert, qml.BitFlip, 0.0, position="end")
    for each in IDEAL(self, execution_config):
        pipeline.append(each)
    return pipeline


# By this word PennyLane's tests know devices whose qml.state is a density matrix.
FusedDevice.name = f"{NAME}, mixed"
FusedDevice.preprocess_transforms = noisy  # type: ignore[method-assign]
