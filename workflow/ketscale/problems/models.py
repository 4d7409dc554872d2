"""The models by name, without importing any: what the config may name and how a run builds it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketscale.engines.circuits.methods import Method

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """Where a model's class lives, whether it holds a circuit (a classical one runs at q0 with `none`), and what it takes.

    takes: "images" (features of images), "series" or "sentences", as a workload of `workloads.catalogue` gives.
    own: ways to evaluate its circuit that no other model has, besides the simulators.
    qubits: the only number that it has, None for any.
    """

    module: str
    name: str
    quantum: bool
    takes: str = "images"
    own: frozenset[Method] = frozenset()
    qubits: int | None = None


_LIKELIHOODS = frozenset(
    {
        Method("closed-form", "backprop", "broadcast"),
        Method("closed-form", "parameter-shift", "broadcast"),
        Method("literal", "parameter-shift", "loop"),
        Method("literal-bound", "parameter-shift", "loop"),
    }
)


MODELS: dict[str, Entry] = {
    "vqc": Entry("ketscale.problems.images.vqc", "VQC", quantum=True),
    "mlp": Entry("ketscale.problems.images.mlp", "MLP", quantum=False),
    "hydra": Entry("ketscale.problems.eeg.hydra", "Hydra", quantum=True, takes="series"),
    "hydra_hybrid": Entry("ketscale.problems.eeg.hydra", "HydraHybrid", quantum=True, takes="series"),
    "mamba": Entry("ketscale.problems.eeg.mamba", "Mamba", quantum=True, takes="series"),
    "mamba_hybrid": Entry("ketscale.problems.eeg.mamba", "MambaHybrid", quantum=True, takes="series"),
    "mamba_lite": Entry("ketscale.problems.eeg.mamba", "MambaLite", quantum=True, takes="series"),
    "mamba_hybrid_lite": Entry(
        "ketscale.problems.eeg.mamba", "MambaHybridLite", quantum=True, takes="series"
    ),
    "superposition_transformer": Entry(
        "ketscale.problems.sentences.transformer",
        "SuperpositionTransformer",
        quantum=True,
        takes="sentences",
        own=_LIKELIHOODS,
        qubits=4,
    ),
    "classical_mamba": Entry(
        "ketscale.problems.eeg.state_space", "ClassicalMamba", quantum=False, takes="series"
    ),
    "classical_hydra": Entry(
        "ketscale.problems.eeg.state_space", "ClassicalHydra", quantum=False, takes="series"
    ),
}


def build(model: str, **arguments: Any) -> nn.Module:
    """The model `model`, constructed with `arguments` (inputs, outputs, dropout; for circuits more)."""
    entry = MODELS[model]
    return getattr(importlib.import_module(entry.module), entry.name)(**arguments)
