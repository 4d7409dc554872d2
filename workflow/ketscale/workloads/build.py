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
from ketscale.workloads.catalogue import WORKLOADS
from ketscale.workloads.classification import Classification
from ketscale.workloads.features import Features
from ketscale.workloads.series import Prepared


@dataclass(frozen=True)
class Data:
    """A workload's data as a run reads it, with what its record keeps: hashes, and how the data are split."""

    inputs: np.ndarray
    labels: np.ndarray
    splits: Mapping[str, np.ndarray]
    classes: int
    split: dict[str, Any]
    data_hash: str
    features_hash: str
    features: Features | None = None


def read(run: Run, manifest: Path | None) -> Data:
    """Open and verify the prepared data of the run's workload.

    Raises:
        UserError: there is no manifest, or a file does not match it.
    """
    if manifest is None:
        raise UserError(
            f"workload {run.workload} needs its features: give --features FILE (`ketscale features --help`)"
        )
    if WORKLOADS[run.workload].gives == "series":
        prepared = Prepared.open(manifest)
        splits, split = prepared.fold(run.seed)
        series = prepared.series
        return Data(series.signals, series.labels, splits, 2, split, prepared.data_hash, prepared.hash)
    features = Features.open(manifest)
    return Data(
        features.embeddings,
        features.labels,
        features.splits,
        10,
        {"by": "labels", "fold": None, "folds": None, "held_out": None},
        features.data_hash,
        features.hash,
        features,
    )


def problem(run: Run, settings: Mapping[str, Any], data: Data, device: torch.device) -> Classification:
    """The run's problem on `device`, in the protocol's precision, its weights drawn from the run's seed.

    Weights are drawn in fp32 on the CPU whatever the precision and device, so that they are the same numbers.
    """
    protocol = settings["protocol"]
    torch.manual_seed(run.seed)
    shape = data.inputs.shape[1:]
    arguments: dict[str, Any] = {
        "inputs": shape if len(shape) > 1 else shape[0],
        "outputs": data.classes,
        "dropout": protocol.get("dropout", 0.0),
    }
    if models.MODELS[run.model].quantum:
        simulator = create(run.simulator, settings["simulator"], device)
        arguments |= {"qubits": run.qubits, "layers": run.layers, "simulator": simulator}
    model = models.build(run.model, **arguments)
    network = data.features if protocol["features"] == "inline" else None
    built = Classification(
        model,
        inputs=_tensor(data.inputs if network is None else network.pixels),
        labels=_tensor(data.labels),
        splits={name: _tensor(rows) for name, rows in data.splits.items()},
        seed=run.seed,
        backbone=None if network is None else network.backbone(),
    )
    dtype = torch.float64 if protocol["precision"] == "fp64" else torch.float32
    return built.to(device=device, dtype=dtype)


def _tensor(array: np.ndarray) -> torch.Tensor:
    # A copy: the arrays are memory-mapped read-only, and a run indexes them in every step.
    return torch.from_numpy(np.array(array))
