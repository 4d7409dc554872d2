"""The parts that families of classifiers share: the form of their data, their metrics, and how a run is built.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ketscale.config import Data, Metric, Settings
from ketscale.engines.circuits.settings import CircuitSimulator

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from ketscale.problems.classification import Classification

# `Classification.metrics` computes them.
CLASSIFICATION = (
    Metric("accuracy", "accuracy", "share correct", "up", chance="data"),
    Metric("auc", "AUC", "", "up", chance=0.5, least=0, most=1),
    Metric("f1", "F1", "", "up", least=0, most=1),
)


class LabelledSamples(NamedTuple):
    """Samples as a run reads them, mapped from disk.

    inputs: (n, ...), of the model, or of the backbone if there is one. labels: int64 (n,), indices into `classes`, the
    names. splits: indices (int64) of the samples in each part. shape: what the model takes as `inputs`: the shape of a
    sample, or its number of features. backbone: makes the frozen network that turns `inputs` into the model's.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    splits: Mapping[str, NDArray[np.int64]]
    shape: int | tuple[int, ...]
    backbone: Callable[[], nn.Module] | None = None


def build(settings: Settings, data: Data, device: torch.device) -> Classification:
    """The classification of a run, whose data are `LabelledSamples`.

    Circuits run on `device`, the model's, unless the simulator's placement says otherwise.

    Raises:
        UserError: as for `build_simulator` or the backbone, or the model refuses a size.
    """
    import numpy as np
    import torch

    from ketscale.engines.circuits.factory import build_simulator
    from ketscale.problems import models
    from ketscale.problems.classification import Classification

    samples: LabelledSamples = data.content
    simulator = None
    if settings.simulator is not None:
        assert isinstance(settings.simulator, CircuitSimulator)
        simulator = build_simulator(settings.run.simulator, settings.simulator, device)
    arguments: dict[str, Any] = {"inputs": samples.shape, "outputs": len(samples.classes)}
    return Classification(
        models.of_settings(settings, simulator, **arguments),
        # Copies: the arrays are memory-mapped read-only, and a run indexes them in every step.
        inputs=torch.from_numpy(np.array(samples.inputs)),
        labels=torch.from_numpy(np.array(samples.labels)),
        splits={name: torch.from_numpy(rows) for name, rows in samples.splits.items()},
        seed=settings.run.seed,
        backbone=samples.backbone and samples.backbone(),
        arguments=arguments,
    )
