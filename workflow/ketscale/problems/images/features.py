"""Cached embeddings, computed once and kept with their images and the network that made them.

Embeddings are standardised: each of the 512 features has mean 0 and standard deviation 1 over the training
split (labels are not used). The inline backbone applies the same constants. A workload with features of its own
needs no network: its features are standardised in the same way and kept without images.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ketscale.config import Data, Split
from ketscale.errors import UserError
from ketscale.files import sha256, write_atomic
from ketscale.problems import store
from ketscale.problems.arrays import single
from ketscale.problems.images import resnet
from ketscale.problems.images.images import Images, SplitSamples, Vectors
from ketscale.problems.images.pretrain import origin_of, pretrain
from ketscale.problems.images.workloads import IMAGENET_FILE, PRETRAIN_STEPS
from ketscale.problems.labelled import LabelledSamples
from ketscale.problems.splits import Parts

if TYPE_CHECKING:
    from ketscale.problems.images.workloads import ImageWorkload

FEATURES_VERSION = 3  # increase it whenever the arithmetic or the files below change
FILES = ("embeddings.npy", "labels.npy", "splits.npz", "norm.npz")
NETWORK_FILES = (
    "pixels.npy",
    "weights.safetensors",
)  # the further files if a network made the embeddings
FLOOR = 0.01  # of the mean deviation, so that features of the network that hardly vary are not blown up


@dataclass(frozen=True)
class PreparedFeatures:
    """Cached embeddings and their data, as arrays mapped from disk.

    embeddings: float32 (n, features), standardised.
    pixels: as in `Images`; None if no network made the embeddings, or it is not wanted.
    labels, splits, classes: as in `SplitSamples`.
    folder: of its entries, `shared` and `data_hash` are those of `SplitSamples`.
    """

    embeddings: NDArray[np.float32]
    pixels: NDArray[Any] | None
    labels: NDArray[np.int64]
    splits: Parts
    classes: tuple[str, ...]
    folder: store.PreparedFolder

    @classmethod
    def open(cls, manifest: Path, network: bool = True) -> PreparedFeatures:
        """Map the arrays that `manifest` points to, after checking every file's SHA-256.

        network: whether the network that made the embeddings is wanted too, with its pixels. Its weights are the
            largest file by far.

        Raises:
            UserError: the manifest or a file is missing or damaged, or was written by another version.
        """
        folder = store.opened(manifest, FILES, FEATURES_VERSION, () if network else NETWORK_FILES)
        return cls(
            embeddings=folder.array("embeddings.npy"),
            pixels=folder.array("pixels.npy") if network and (folder.path / "pixels.npy").exists() else None,
            labels=folder.array("labels.npy"),
            splits=folder.arrays("splits.npz"),
            classes=tuple(folder.entries["classes"]),
            folder=folder,
        )

    def data(self, split_by: str, inline: bool) -> Data:
        """The data of a run: the embeddings or, with features: inline, pixels and the network that maps them to embeddings.

        split_by: see `Split`.
        """
        inputs = self.pixels if inline else self.embeddings
        assert inputs is not None  # inline features without a network are refused with the config
        shape, backbone = self.embeddings.shape[1], self.backbone if inline else None
        samples = LabelledSamples(inputs, self.labels, self.classes, self.splits, shape, backbone)
        return self.folder.data(samples, Split(split_by, shared=self.folder.entries["shared"]))

    def backbone(self) -> resnet.Backbone:
        """The frozen network that maps pixels to these embeddings, to compute them inline.

        Raises:
            UserError: as for `resnet.network_from`.
        """
        norm = self.folder.arrays("norm.npz")
        channels = tuple(norm["pixel_mean"].tolist()), tuple(norm["pixel_std"].tolist())
        size = self.folder.entries["settings"]["image_size"]
        scaling = resnet.PixelScaling(size, int(norm["peak"]), *channels)
        network = resnet.network_from(self.folder.path / "weights.safetensors", len(scaling.mean))
        return resnet.Backbone(network, scaling, norm["feature_mean"], norm["feature_std"])


def prepare(workload: ImageWorkload, manifest: Path, fetched: Path | None) -> None:
    """Embed a workload's images, or standardise its features; write the arrays, then the manifest.

    An intact folder is reused. Weights that are trained here are kept beside the manifest and reused for the same
    images and split.

    fetched: the folder of the files that the rule `fetch` has fetched, if there are any.

    Raises:
        UserError: data or weights are missing, damaged or do not fit; nothing is left behind.
    """
    data = workload.load(fetched)
    if isinstance(data, Vectors):
        _publish(workload, data, manifest, {"floor": 0}, lambda folder: _fill_features(folder, data))
        return
    images = data
    assert workload.image_size is not None
    if workload.weights == "imagenet":
        if fetched is None:
            raise UserError("weights: imagenet needs the fetched weights; run the rule fetch")
        weights = fetched / IMAGENET_FILE
    else:
        weights = manifest.parent / "weights-selfsupervised.safetensors"
        size, steps = workload.image_size, workload.pretrain_steps or PRETRAIN_STEPS
        if not _trained_for(weights, images, size, steps):
            with tqdm(unit="step", mininterval=2) as bar:
                pretrain(images, size, weights, steps, progress=_shown_by(bar))
    compute(workload, images, weights, manifest)


def compute(workload: ImageWorkload, images: Images, weights: Path, manifest: Path) -> None:
    """Embed images by the network with these weights and write the arrays and the manifest, as `prepare` does.

    Raises:
        UserError: the weights are missing, damaged or those of another network.
    """
    assert workload.weights is not None and workload.image_size is not None
    resnet.read_weights(weights)
    scaling = resnet.scaling_for(workload.weights, workload.image_size, images)
    normalisation = {"pixel_mean": scaling.mean, "pixel_std": scaling.std, "floor": FLOOR}
    _publish(
        workload,
        images,
        manifest,
        normalisation,
        lambda folder: _fill(folder, images, scaling, weights),
        weights_hash=sha256(weights),
    )


def _publish(
    workload: ImageWorkload,
    data: SplitSamples,
    manifest: Path,
    normalisation: Mapping[str, Any],
    fill: Callable[[Path], dict[str, Any]],
    **more: str,
) -> None:
    """Build the folder of this content by `store.publish`."""
    identity = store.identity_of(
        workload,
        data.digest(),
        FEATURES_VERSION,
        classes=data.classes,
        normalisation=normalisation,
        shared=data.shared(),
        **more,
    )
    files = FILES + NETWORK_FILES if isinstance(data, Images) else FILES
    store.publish(manifest, identity, files, fill)


def _shown_by(bar: tqdm[NoReturn]) -> Callable[[int, int, float], None]:
    def progress(step: int, steps: int, loss: float) -> None:
        bar.total = steps
        bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
        bar.update()

    return progress


def _fill(folder: Path, images: Images, scaling: resnet.PixelScaling, weights: Path) -> dict[str, Any]:
    """Write the files of the embeddings; return the number of samples and of features."""
    shutil.copyfile(weights, folder / "weights.safetensors")
    network = resnet.network_from(folder / "weights.safetensors", len(scaling.mean))
    start = time.perf_counter()
    with resnet.fixed_threads():
        embeddings = resnet.embed(network, images.pixels, scaling)
    seconds = time.perf_counter() - start
    means, deviations = _statistics(embeddings[images.splits["train"]])
    floor = FLOOR * deviations.mean()
    mean = means.astype(np.float32)
    std = np.maximum(deviations, floor if floor > 0 else 1.0).astype(np.float32)
    np.save(folder / "pixels.npy", images.pixels)
    scales = {"peak": images.peak, "pixel_mean": scaling.mean, "pixel_std": scaling.std}
    _save(folder, (embeddings - mean) / std, images, **scales, feature_mean=mean, feature_std=std)
    write_atomic(folder / "timing.json", json.dumps({"embed_seconds": round(seconds, 3)}).encode())
    return {"samples": len(embeddings), "dimension": embeddings.shape[1]}


def _fill_features(folder: Path, data: Vectors) -> dict[str, Any]:
    """Write the files of given features, standardised; return the number of samples and of features.

    Their units differ, so each is divided by its own deviation, or by 1 if it is constant.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = _statistics(data.values[data.splits["train"]])
    if not np.isfinite(std).all():
        # Divided by infinity, every sample would be 0.
        raise UserError("features: are too large to be standardised; give them in another unit")
    # Deviations this small come from rounding: the feature is constant.
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    _save(folder, single((data.values - mean) / std, "features"), data, feature_mean=mean, feature_std=std)
    return {"samples": len(data.values), "dimension": data.values.shape[1]}


def _save(folder: Path, embeddings: NDArray[np.float32], data: SplitSamples, **norm: Any) -> None:
    store.write(folder, dict(zip(FILES, (embeddings, data.labels, data.splits, norm), strict=True)))


def _statistics(features: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each feature, in double precision."""
    return features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)


def _trained_for(weights: Path, images: Images, size: int, steps: int) -> bool:
    """Whether these weights were trained on these images with this split: others have seen test images."""
    if not weights.exists():
        return False
    _, origin = resnet.read_weights(weights)
    return origin == origin_of(images, size, steps)
