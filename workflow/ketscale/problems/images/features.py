"""Cached embeddings: computed once, kept with their images and the network that made them.

Embeddings are standardised: each of the 512 features has mean 0 and standard deviation 1 over the training
split (labels play no part). The inline backbone applies the same constants.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.measure.records import write_atomic
from ketscale.problems import store
from ketscale.problems import workloads as catalogue
from ketscale.problems.images import resnet
from ketscale.problems.images.images import SPLITS, Images

FEATURES_VERSION = 1  # raise it whenever the arithmetic below changes
FILES = ("embeddings.npy", "pixels.npy", "labels.npy", "splits.npz", "norm.npz", "weights.safetensors")
FLOOR = 0.01  # of the mean deviation: features that hardly vary are not blown up


@dataclass(frozen=True)
class Features:
    """Cached embeddings with their data, as arrays mapped from disk.

    embeddings: float32 (n, 512), standardised; pixels: uint8 (n, height, width); labels: int64 (n,);
    splits: int64 indices of train, validation and test; hash: the folder's name, which a record keeps.
    """

    embeddings: NDArray[np.float32]
    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    splits: dict[str, NDArray[np.int64]]
    hash: str
    data_hash: str
    weights_hash: str
    settings: dict[str, Any]
    folder: Path

    @classmethod
    def open(cls, manifest: Path, verify: bool = True) -> Features:
        """Map the arrays that `manifest` points to; with `verify`, after checking every file's SHA-256.

        Raises:
            UserError: the manifest or a file is missing, damaged, or of another version.
        """
        folder, described = store.opened(manifest, FILES, FEATURES_VERSION, verify)
        with np.load(folder / "splits.npz") as archive:
            splits = {name: archive[name] for name in SPLITS}
        return cls(
            embeddings=np.load(folder / "embeddings.npy", mmap_mode="r"),
            pixels=np.load(folder / "pixels.npy", mmap_mode="r"),
            labels=np.load(folder / "labels.npy", mmap_mode="r"),
            splits=splits,
            hash=described["hash"],
            data_hash=described["data_hash"],
            weights_hash=described["weights_hash"],
            settings=described["settings"],
            folder=folder,
        )

    def backbone(self) -> resnet.Backbone:
        """The frozen network that maps uint8 pixels to these embeddings, to compute them inline."""
        with np.load(self.folder / "norm.npz") as norm:
            channels = tuple(norm["pixel_mean"].tolist()), tuple(norm["pixel_std"].tolist())
            scaling = resnet.Scaling(self.settings["image_size"], int(norm["peak"]), *channels)
            mean, std = norm["feature_mean"], norm["feature_std"]
        network = resnet.network_from(self.folder / "weights.safetensors", len(scaling.mean))
        return resnet.Backbone(network, scaling, mean, std)


def compute(
    workload: str, settings: Mapping[str, Any], manifest: Path, source: Path | None, weights: Path | None
) -> None:
    """Embed a workload's images and write the arrays, then the manifest; a valid folder is used again.

    source: the folder of the data's files (None for digits); weights: the file that `pretrain` or
    `fetch_imagenet` wrote.

    Raises:
        UserError: settings, data or weights are missing, damaged or do not fit; nothing is left behind.
    """
    catalogue.check(workload, settings)
    size = resnet.check_size(settings["image_size"])
    if weights is None:
        raise UserError(
            f"workloads.{workload}: features need a weight file; run the rule pretrain or fetch_imagenet"
        )
    images = catalogue.load(workload, settings, source)
    data_hash = images.digest()
    _check_origin(weights, settings["weights"], data_hash, size)
    scaling = resnet.scaling_for(settings["weights"], size, images.peak, images.brightness())
    # Where data and weights lie is the machine's business, so it is no part of the content.
    resolved = {
        key: value for key, value in sorted(settings.items()) if key not in ("folder", "weights_folder")
    }
    identity = {
        "workload": workload,
        "settings": resolved,
        "data_hash": data_hash,
        "weights_hash": store.sha256(weights),
        "code_version": FEATURES_VERSION,
        "normalisation": {"pixel_mean": scaling.mean, "pixel_std": scaling.std, "floor": FLOOR},
    }
    store.publish(manifest, identity, FILES, lambda folder: _fill(folder, images, scaling, weights))


def _fill(folder: Path, images: Images, scaling: resnet.Scaling, weights: Path) -> dict[str, Any]:
    """Write the files of the features; how many there are."""
    shutil.copyfile(weights, folder / "weights.safetensors")
    network = resnet.network_from(folder / "weights.safetensors", len(scaling.mean))
    start = time.perf_counter()
    with resnet.fixed_threads():
        embeddings = resnet.embed(network, images.pixels, scaling)
    seconds = time.perf_counter() - start
    mean, std = _statistics(embeddings[images.splits["train"]])
    embeddings = (embeddings - mean) / std
    np.save(folder / "embeddings.npy", embeddings)
    np.save(folder / "pixels.npy", images.pixels)
    np.save(folder / "labels.npy", images.labels)
    np.savez(folder / "splits.npz", allow_pickle=False, **images.splits)
    np.savez(
        folder / "norm.npz",
        allow_pickle=False,
        peak=np.int64(images.peak),
        pixel_mean=np.array(scaling.mean),
        pixel_std=np.array(scaling.std),
        feature_mean=mean,
        feature_std=std,
    )
    write_atomic(folder / "timing.json", json.dumps({"embed_seconds": round(seconds, 3)}).encode())
    return {"samples": len(embeddings), "dimension": embeddings.shape[1]}


def _statistics(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of each feature over the training split, the latter kept off zero."""
    mean, std = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
    floor = FLOOR * std.mean()
    return mean.astype(np.float32), np.maximum(std, floor if floor > 0 else 1.0).astype(np.float32)


def _check_origin(weights: Path, kind: str, data_hash: str, size: int) -> None:
    """Refuse weights of another kind, and self-supervised ones that saw another split: a leak."""
    _, origin = resnet.read_weights(weights)
    if origin.get("kind") != kind:
        raise UserError(
            f"{weights}: holds {origin.get('kind')} weights, not {kind}; delete it and run its rule again"
        )
    if kind == "selfsupervised" and (origin["data_hash"], origin["image_size"]) != (data_hash, size):
        raise UserError(
            f"{weights}: was trained on another data set, split or image_size; delete it and run the rule pretrain again"
        )
