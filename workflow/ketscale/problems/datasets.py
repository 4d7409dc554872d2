"""The parts that families of supervised learning share: the form of their data, their metrics, and how a run is built.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ketscale.config import Data, Settings
from ketscale.config.circuits import CircuitSimulator
from ketscale.config.metrics import OF_ONE_TARGET, OF_PROBABILITIES
from ketscale.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from ketscale.problems.preprocessing import Preprocessing
    from ketscale.problems.supervised import Supervised


class Dataset(NamedTuple):
    """Samples as a run reads them, mapped from disk.

    inputs: (n, ...), of the model, or of the backbone if there is one. targets: int64 (n,), indices into `names`, which
    are those of the classes; or, of a regression, float64 (n, columns), whose names `names` are. splits: indices (int64) of the samples in each part. shape: what the model takes as `inputs`: the shape of a
    sample, or its number of features. backbone: makes the frozen network that turns `inputs` into the model's.
    preprocessing: how raw samples become the model's inputs.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    names: tuple[str, ...]
    splits: Mapping[str, NDArray[np.int64]]
    shape: int | tuple[int, ...]
    backbone: Callable[[], nn.Module] | None = None
    preprocessing: Preprocessing | None = None


def build(settings: Settings, data: Data, device: torch.device) -> Supervised:
    """The classification or regression of a run, whose data are a `Dataset`.

    Circuits run on `device`, the model's, unless the simulator's placement says otherwise.

    Raises:
        UserError: as for `build_simulator` or the backbone; the model rejects a size; or the metric does not apply to these
            targets, or is of probabilities that the model has not.
    """
    import numpy as np
    import torch

    from ketscale.problems import models
    from ketscale.problems.fitted import Fitted
    from ketscale.problems.supervised import Classification, Regression
    from ketscale.simulators.factory import build_simulator

    dataset: Dataset = data.content
    simulator = None
    if settings.simulator is not None:
        assert isinstance(settings.simulator, CircuitSimulator)
        simulator = build_simulator(settings.run.simulator, settings.simulator, device)
    arguments: dict[str, Any] = {"inputs": dataset.shape, "outputs": len(dataset.names)}
    problem: type[Supervised] = Regression if dataset.targets.dtype.kind == "f" else Classification
    model, metric = (
        models.of_settings(settings, simulator, **arguments),
        getattr(settings.workload, "metric", None),
    )
    if metric in OF_PROBABILITIES and isinstance(model, Fitted) and not model.logits:
        raise UserError(f"metric: {metric} needs probabilities, and {settings.run.model} has none")
    if (metric in OF_ONE_TARGET and len(dataset.names) > 1) or (
        metric == "top_k_accuracy" and len(dataset.names) == 2
    ):
        raise UserError(f"metric: {metric} is not defined for {len(dataset.names)} targets or classes")
    return problem(
        model,
        # Copies: the arrays are memory-mapped read-only, and a run indexes them in every step.
        torch.from_numpy(np.array(dataset.inputs)),
        torch.from_numpy(np.array(dataset.targets)),
        {name: torch.from_numpy(rows) for name, rows in dataset.splits.items()},
        seed=settings.run.seed,
        backbone=dataset.backbone and dataset.backbone(),
        arguments=arguments,
        preprocessing=dataset.preprocessing,
        loss=settings.protocol.loss,
        class_weights=settings.protocol.class_weights,
        metric=metric,
    )
