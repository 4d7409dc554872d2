"""The family `images`: images or features, and classifiers of their features, with or without a circuit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale.config import Data, Family, FileModel, Settings, Workload
from ketscale.engines.circuits.settings import CIRCUIT_SIZES, TINY_SIMULATORS, CircuitSimulator
from ketscale.problems.datasets import CLASSIFICATION, build
from ketscale.problems.images.own_workloads import Arrays, Idx, ImageFolder
from ketscale.problems.images.workloads import Digits, ImageWorkload, Mnist
from ketscale.problems.vectors.settings import MODELS

if TYPE_CHECKING:
    from ketscale.problems.baselines import Baseline


def prepare(workload: Workload, manifest: Path, fetched: Path | None) -> None:
    """Embed every image once, or standardise given features; see `features.prepare`."""
    from ketscale.problems.images import features

    assert isinstance(workload, ImageWorkload)
    features.prepare(workload, manifest, fetched)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the features, and the network that made them if the run computes them inline."""
    from ketscale.problems.images.features import PreparedFeatures

    inline = settings.protocol.features == "inline"
    assert isinstance(settings.workload, ImageWorkload)
    features = PreparedFeatures.open(manifest, network=inline)
    by = settings.workload.split_by
    return features.inline_data(by) if inline else features.data(by)


def fit_baselines(manifest: Path) -> Iterable[Baseline]:
    """Fit what stands beside the models: the majority class and logistic regression, on the features that they see."""
    from ketscale.problems.baselines import of_vectors
    from ketscale.problems.images.features import PreparedFeatures

    found = PreparedFeatures.open(manifest, network=False)
    return of_vectors(found.features, found.targets, found.splits)


FAMILY = Family(
    name="images",
    title="images",
    samples="images",
    sizes=CIRCUIT_SIZES,
    sampler="shuffled",
    workloads={
        "digits": Digits,
        "mnist": Mnist,
        "arrays": Arrays,
        "image-folder": ImageFolder,
        "idx": Idx,
    },
    models=MODELS,
    simulators=(CircuitSimulator,),
    metrics=CLASSIFICATION,
    tiny={
        "workloads": {
            "digits": {"split_seed": 0, "weights": "selfsupervised", "image_size": 8, "pretrain_steps": 2}
        },
        "axes": {"workload": "digits", "model": "vqc", "qubits": 2, "layers": 1, "batch": 16},
        "control": {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"},
        "simulators": TINY_SIMULATORS,
    },
    build=build,
    own=FileModel,
    loss_unit="nats",
    prepare=prepare,
    read=read,
    baselines=fit_baselines,
)
