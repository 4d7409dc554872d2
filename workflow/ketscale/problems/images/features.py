"""Cached embeddings: computed once, kept with their images and the network that made them.

Embeddings are standardised: each of the 512 features has mean 0 and standard deviation 1 over the training
split (labels play no part). The inline backbone applies the same constants.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ketscale.files import write_atomic
from ketscale.problems import store
from ketscale.problems.images import resnet
from ketscale.problems.images.images import SPLITS, Images
from ketscale.problems.images.pretrain import STEPS, origin_of, pretrain
from ketscale.problems.images.specification import IMAGENET_FILE

if TYPE_CHECKING:
    from ketscale.problems.images.specification import ImageWorkload

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

    @property
    def classes(self) -> int:
        """How many labels there are."""
        return int(self.labels.max()) + 1

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


def prepare(workload: ImageWorkload, manifest: Path, fetched: Path | None) -> None:
    """Embed a workload's images and write the arrays, then the manifest; a valid folder is used again.

    Weights that are trained here are kept beside the manifest, and used again for the same images.

    fetched: the folder of what the rule `fetch` has fetched, where anything was.

    Raises:
        UserError: data or weights are missing, damaged or do not fit; nothing is left behind.
    """
    images = workload.load(fetched)
    if workload.weights == "imagenet":
        assert fetched is not None
        weights = fetched / IMAGENET_FILE
    else:
        weights = manifest.parent / "weights-selfsupervised.safetensors"
        if not _trained_for(weights, images, workload.image_size):
            with tqdm(unit="step", mininterval=2) as bar:
                pretrain(images, workload.image_size, weights, progress=_shown_by(bar))
    compute(workload, images, weights, manifest)


def compute(workload: ImageWorkload, images: Images, weights: Path, manifest: Path) -> None:
    """Embed images by the network with these weights, as `prepare` does."""
    data_hash = images.digest()
    scaling = resnet.scaling_for(workload.weights, workload.image_size, images.peak, images.brightness())
    identity = {
        "workload": type(workload).__name__,
        # Where data and weights are is the machine's business, so it is no part of the content.
        "settings": workload.content(),
        "data_hash": data_hash,
        "weights_hash": store.sha256(weights),
        "code_version": FEATURES_VERSION,
        "normalisation": {"pixel_mean": scaling.mean, "pixel_std": scaling.std, "floor": FLOOR},
    }
    store.publish(manifest, identity, FILES, lambda folder: _fill(folder, images, scaling, weights))


def _shown_by(bar: tqdm[NoReturn]) -> Callable[[int, int, float], None]:
    def progress(step: int, steps: int, loss: float) -> None:
        bar.total = steps
        bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
        bar.update()

    return progress


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


def _trained_for(weights: Path, images: Images, size: int) -> bool:
    """Whether these weights were trained on these images with this split: others have seen test images."""
    if not weights.exists():
        return False
    _, origin = resnet.read_weights(weights)
    return origin == origin_of(images, size, STEPS)
