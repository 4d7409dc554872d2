"""From a run and its prepared data to the `Problem` that the trainer trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ketscale.engines.circuits.create import create
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems import models as models
from ketscale.problems.classification import Classification
from ketscale.problems.eeg import series
from ketscale.problems.images.features import Features
from ketscale.problems.problem import Problem
from ketscale.problems.sentences import sentences
from ketscale.problems.workloads import WORKLOADS


@dataclass(frozen=True)
class Labelled:
    """Samples with labels; `features` where raw data and a network lie behind the inputs."""

    inputs: np.ndarray
    labels: np.ndarray
    splits: Mapping[str, np.ndarray]
    classes: int
    features: Features | None = None


@dataclass(frozen=True)
class Data:
    """A workload's data as a run reads it, with what its record keeps: hashes, and how the data are split."""

    content: Labelled | sentences.Prepared
    split: dict[str, Any]
    data_hash: str
    features_hash: str


def read(run: Run, manifest: Path | None) -> Data:
    """Open and verify the prepared data of the run's workload.

    Raises:
        UserError: there is no manifest, or a file does not match it.
    """
    if manifest is None:
        raise UserError(
            f"workload {run.workload} needs its features: give --features FILE (`ketscale features --help`)"
        )
    gives = WORKLOADS[run.workload].gives
    if gives == "series":
        prepared = series.Prepared.open(manifest)
        splits, split = prepared.fold(run.seed)
        content = Labelled(prepared.series.signals, prepared.series.labels, splits, 2)
        return Data(content, split, prepared.data_hash, prepared.hash)
    if gives == "sentences":
        text = sentences.Prepared.open(manifest)
        return Data(text, _split("sentences"), text.data_hash, text.hash)
    features = Features.open(manifest)
    content = Labelled(features.embeddings, features.labels, features.splits, 10, features)
    return Data(content, _split("labels"), features.data_hash, features.hash)


def _split(by: str) -> dict[str, Any]:
    return {"by": by, "fold": None, "folds": None, "held_out": None}


def problem(run: Run, settings: Mapping[str, Any], data: Data, device: torch.device) -> Problem:
    """The run's problem on `device`, in the protocol's precision, its weights drawn from the run's seed.

    Weights are drawn in fp32 on the CPU whatever the precision and device, so that they are the same numbers.

    Raises:
        UserError: model, simulator or data do not fit together.
    """
    torch.manual_seed(run.seed)
    if isinstance(data.content, sentences.Prepared):
        built: Problem = _next_word(run, settings, data.content, device)
    else:
        built = _classification(run, settings, data.content, device)
    dtype = torch.float64 if settings["protocol"]["precision"] == "fp64" else torch.float32
    return built.convert(device, dtype)


def _classification(
    run: Run, settings: Mapping[str, Any], data: Labelled, device: torch.device
) -> Classification:
    protocol = settings["protocol"]
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
    return Classification(
        model,
        inputs=_tensor(data.inputs if network is None else network.pixels),
        labels=_tensor(data.labels),
        splits={name: _tensor(rows) for name, rows in data.splits.items()},
        seed=run.seed,
        backbone=None if network is None else network.backbone(),
    )


def _next_word(
    run: Run, settings: Mapping[str, Any], prepared: sentences.Prepared, device: torch.device
) -> Problem:
    from ketscale.problems.sentences import likelihoods
    from ketscale.problems.sentences.next_word import NextWord, transitions
    from ketscale.problems.sentences.transformer import SuperpositionTransformer

    likelihood = likelihoods.create(
        run.simulator, settings["simulator"], run.layers, transitions(prepared), device
    )
    return NextWord(SuperpositionTransformer(run.layers), likelihood, prepared)


def _tensor(array: np.ndarray) -> torch.Tensor:
    # A copy: the arrays are memory-mapped read-only, and a run indexes them in every step.
    return torch.from_numpy(np.array(array))
