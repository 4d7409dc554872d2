"""From a run and its features to the `Problem` that the trainer trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.models import catalogue as models
from ketscale.simulators import create
from ketscale.workloads.classification import Classification
from ketscale.workloads.features import Features

CLASSES = 10


@dataclass(frozen=True)
class Data:
    """A workload's data as a run reads it, with the hashes that its record keeps."""

    features: Features
    data_hash: str
    features_hash: str


def read(run: Run, manifest: Path | None) -> Data:
    """Open and verify the features of the run's workload.

    Raises:
        UserError: there is no manifest, or a file does not match it.
    """
    if manifest is None:
        raise UserError(
            f"workload {run.workload} needs its features: give --features FILE (`ketscale features --help`)"
        )
    features = Features.open(manifest)
    return Data(features, features.data_hash, features.hash)


def problem(run: Run, settings: Mapping[str, Any], data: Data, device: torch.device) -> Classification:
    """The run's problem on `device`, in the protocol's precision, its weights drawn from the run's seed.

    Weights are drawn in fp32 on the CPU whatever the precision and device, so that they are the same numbers.
    """
    protocol = settings["protocol"]
    torch.manual_seed(run.seed)
    arguments: dict[str, Any] = {"outputs": CLASSES, "dropout": protocol.get("dropout", 0.0)}
    if models.MODELS[run.model].quantum:
        simulator = create(run.simulator, settings["simulator"], device)
        arguments |= {"qubits": run.qubits, "layers": run.layers, "simulator": simulator}
    features = data.features
    arguments["inputs"] = features.embeddings.shape[1]
    model = models.build(run.model, **arguments)
    inline = protocol["features"] == "inline"
    built = Classification(
        model,
        inputs=_tensor(features.pixels if inline else features.embeddings),
        labels=_tensor(features.labels),
        splits={name: _tensor(rows) for name, rows in features.splits.items()},
        seed=run.seed,
        backbone=features.backbone() if inline else None,
    )
    dtype = torch.float64 if protocol["precision"] == "fp64" else torch.float32
    return built.to(device=device, dtype=dtype)


def _tensor(array: np.ndarray) -> torch.Tensor:
    # A copy: the arrays are memory-mapped read-only, and a run indexes them in every step.
    return torch.from_numpy(np.array(array))
