"""The family `images`: images, and classifiers of their features, with or without a circuit."""

from __future__ import annotations

from ketscale.config import METRICS, Family, FileModel, lazily
from ketscale.config.simulators.circuits import CIRCUIT_SIZES, CircuitSimulator
from ketscale.problems.datasets import build
from ketscale.problems.images.workloads import Arrays, Digits, ImageFolder, Mnist
from ketscale.problems.vectors.settings import MODELS

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
    },
    models=MODELS,
    simulators=(CircuitSimulator,),
    metrics=METRICS["classes"],
    build=build,
    own=FileModel,
    prepare=lazily("ketscale.problems.images.features:prepare"),
    read=lazily("ketscale.problems.images.features:read"),
)
