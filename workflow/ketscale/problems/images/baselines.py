"""The baselines of images: those of the vectors that the models see, `of_vectors`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ketscale.config import Workload
from ketscale.problems.baselines import Baseline, of_vectors
from ketscale.problems.images.features import PreparedFeatures


def baselines(workload: Workload, manifest: Path) -> Iterator[Baseline]:
    """The majority class and logistic regression."""
    prepared = PreparedFeatures.open(manifest, network=False)
    return of_vectors(prepared.features, prepared.targets, prepared.splits)
