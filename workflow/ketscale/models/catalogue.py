"""The models by name, without importing any: what the config may name and how a run builds it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """Where a model's class lives, and whether it holds a circuit (a classical one runs at q0 with `none`)."""

    module: str
    name: str
    quantum: bool


MODELS: dict[str, Entry] = {
    "vqc": Entry("ketscale.models.vqc", "VQC", quantum=True),
    "mlp": Entry("ketscale.models.mlp", "MLP", quantum=False),
}


def build(model: str, **arguments: Any) -> nn.Module:
    """The model `model`, constructed with `arguments` (inputs, outputs, dropout; for circuits more)."""
    entry = MODELS[model]
    return getattr(importlib.import_module(entry.module), entry.name)(**arguments)
