"""Feature vectors on disk: written once for all runs, and mapped by each.

Each feature has mean 0 and standard deviation 1 over the training samples; nothing of other samples is used, nor of
targets. Targets are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ketscale.config import Data, Settings, Split, WithTargets
from ketscale.errors import UserError
from ketscale.problems import store
from ketscale.problems.columns import Column
from ketscale.problems.datasets import Dataset
from ketscale.problems.leaks import leaks
from ketscale.problems.own_data import OwnSamples
from ketscale.problems.preprocessing import Features, scaled
from ketscale.problems.samples import Samples
from ketscale.problems.splits import Parts

VERSION = 2  # increase it whenever the arithmetic or the files of prepared rows change
FILES = ("embeddings.npy", "labels.npy", "splits.npz", "norm.npz")


def dataset(folder: store.PreparedFolder) -> Dataset:
    """The standardised features and what is to be predicted, as arrays mapped from disk."""
    features, targets = folder.array("embeddings.npy"), folder.array("labels.npy")
    splits, norm, entries = folder.arrays("splits.npz"), folder.arrays("norm.npz"), folder.entries
    names, columns, scale = tuple(entries.get("targets") or entries["classes"]), entries.get("columns"), None
    if targets.dtype.kind == "f":
        scale = tuple(zip(*(each.tolist() for each in statistics(targets[splits["train"]])), strict=True))
    preprocessing = Features(
        names=names,
        targets=scale,
        columns=columns and msgspec.convert(columns, tuple[Column, ...]),
        mean=tuple(norm["feature_mean"].tolist()),
        std=tuple(norm["feature_std"].tolist()),
    )
    return Dataset(features, targets, names, splits, features.shape[1], preprocessing=preprocessing)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the features of rows and their targets."""
    assert isinstance(settings.workload, OwnSamples)
    folder = store.opened(manifest, VERSION)
    return folder.data(dataset(folder), Split(settings.workload.split_by, shared=folder.entries["shared"]))


def prepare(workload: WithTargets, manifest: Path, fetched: Path | None) -> None:
    """Write the standardised features of rows and their targets, then the manifest; an intact folder is reused.

    Raises:
        UserError: data cannot be read, numbers are too large, or a target is constant; nothing is left behind.
    """
    data: Samples = workload.load(fetched)
    numeric = data.targets.dtype.kind == "f"
    identity = store.identity_of(
        workload,
        data.digest(),
        VERSION,
        **{"targets" if numeric else "classes": data.names},
        normalisation={"floor": 0},
        **({"columns": msgspec.to_builtins(data.columns)} if data.columns else {}),
        shared=data.shared()[0],
    )
    if numeric:
        _check_targets(data)
    store.publish(manifest, identity, FILES, lambda folder: _fill(folder, data))


def write(
    folder: Path, features: NDArray[np.float32], targets: NDArray[Any], splits: Parts, norm: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the files of prepared features; return the number of samples and of features, for the manifest."""
    store.write(folder, dict(zip(FILES, (features, targets, splits, norm), strict=True)))
    return {"samples": len(features), "dimension": features.shape[1]}


def statistics(features: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each feature, in double precision."""
    return features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)


def _fill(folder: Path, data: Samples) -> dict[str, Any]:
    """Write the files of given features, standardised.

    Their units differ, so each is divided by its own deviation, or by 1 if it is constant.
    """
    mean, std = _finite_statistics(data.values[data.splits["train"]], "features: are")
    std[_constant(mean, std)] = 1.0
    features = scaled(data.values, mean, std)
    entries = write(folder, features, data.targets, data.splits, {"feature_mean": mean, "feature_std": std})
    leaking = leaks(data)
    return {**entries, "leaks": leaking} if leaking else entries


def _check_targets(data: Samples) -> None:
    """Refuse targets that no regression can standardise."""
    _finite_statistics(data.targets, "targets: are")  # those of the test have squares in its metrics
    mean, std = _finite_statistics(data.targets[data.splits["train"]], "targets: are")
    for name, constant in zip(data.names, _constant(mean, std), strict=True):
        if constant:
            raise UserError(f"target {name}: has one value in all training samples; leave it out")


def _finite_statistics(values: NDArray[Any], what: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = statistics(values)
    if not np.isfinite(std).all():
        # Divided by infinity, every sample would be 0.
        raise UserError(f"{what} too large to be standardised; give them in another unit")
    return mean, std


def _constant(mean: NDArray[np.float64], std: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which columns are constant: deviations this small come from rounding."""
    return std <= 1e-12 * np.abs(mean)
