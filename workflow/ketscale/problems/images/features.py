"""Cached embeddings, computed once and kept with their images and the network that made them.

Embeddings are standardised: each of the 512 features has mean 0 and standard deviation 1 over the training
split (labels are not used). The inline backbone applies the same constants.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ketscale.config import Data, Settings
from ketscale.errors import UserError
from ketscale.files import sha256, write_atomic
from ketscale.problems import store
from ketscale.problems.images import resnet
from ketscale.problems.images.pretrain import origin_of, pretrain
from ketscale.problems.images.workloads import IMAGENET_FILE, PRETRAIN_STEPS, ImageFolder, ImageWorkload
from ketscale.problems.preprocessing import Pictures, Preprocessing
from ketscale.problems.samples import Samples
from ketscale.problems.vectors import prepared
from ketscale.problems.vectors.prepared import FILES, PreparedVectors

FEATURES_VERSION = 3  # increase it whenever the arithmetic or the files below change
NETWORK_FILES = ("pixels.npy", "weights.safetensors")
FLOOR = 0.01  # of the mean deviation, so that features of the network that hardly vary are not blown up


@dataclass(frozen=True)
class PreparedFeatures(PreparedVectors):
    """Cached embeddings and their data, as arrays mapped from disk.

    pixels: as in `Samples`; None if the network is not wanted. files: see `Pictures`.
    """

    pixels: NDArray[Any] | None
    files: bool = False

    @classmethod
    def open(cls, manifest: Path, network: bool = True) -> PreparedFeatures:
        """Map the arrays that `manifest` points to, after checking every file's SHA-256.

        network: whether the network that made the features is wanted too, with its pixels. Its weights are the
            largest file by far.

        Raises:
            UserError: the manifest or a file is missing or damaged, or was written by another version.
        """
        folder = store.opened(manifest, FEATURES_VERSION, () if network else NETWORK_FILES)
        return cls.of(folder, pixels=folder.array("pixels.npy") if network else None)

    def inline_data(self, split_by: str) -> Data:
        """The data of a run with features: inline, pixels and the network that maps them to features."""
        assert self.pixels is not None
        found = self.data(split_by)
        return replace(found, content=found.content._replace(inputs=self.pixels, backbone=self.backbone))

    @property
    def preprocessing(self) -> Preprocessing:
        """See `PreparedVectors`; with the network's part."""
        norm = {name: array.tolist() for name, array in self.folder.arrays("norm.npz").items()}
        return Pictures(
            names=self.names,
            size=self.folder.entries["settings"]["image_size"],
            files=self.files,
            peak=int(norm["peak"]),
            pixel_mean=tuple(norm["pixel_mean"]),
            pixel_std=tuple(norm["pixel_std"]),
            mean=tuple(norm["feature_mean"]),
            std=tuple(norm["feature_std"]),
            weights_hash=self.folder.entries["weights_hash"],
        )

    def backbone(self) -> resnet.Backbone:
        """The frozen network that maps pixels to these embeddings, to compute them inline."""
        of = self.preprocessing
        assert isinstance(of, Pictures)
        network = resnet.network_from(self.folder.path / "weights.safetensors", len(of.pixel_mean))
        return resnet.Backbone(
            network, of.scaling, np.array(of.mean, np.float32), np.array(of.std, np.float32)
        )


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the features, and the network that made them if the run computes them inline."""
    assert isinstance(settings.workload, ImageWorkload)
    inline, by = settings.protocol.features == "inline", settings.workload.split_by
    files = isinstance(settings.workload, ImageFolder)
    found = replace(PreparedFeatures.open(manifest, network=inline), files=files)
    return found.inline_data(by) if inline else found.data(by)


def prepare(workload: ImageWorkload, manifest: Path, fetched: Path | None) -> None:
    """Embed a workload's images and write the arrays, then the manifest.

    An intact folder is reused. Weights that are trained here are kept beside the manifest and reused for the same
    images and split.

    fetched: the folder of the files that the rule `fetch` has fetched, if there are any.

    Raises:
        UserError: data or weights are missing, damaged or do not fit; nothing is left behind.
    """
    images = workload.load(fetched)
    if workload.weights == "imagenet":
        if fetched is None:
            raise UserError("weights: imagenet needs the fetched weights; run the rule fetch")
        weights = fetched / IMAGENET_FILE
    else:
        weights = manifest.parent / "weights-selfsupervised.safetensors"
        size, steps = workload.image_size, workload.pretrain_steps or PRETRAIN_STEPS
        if not _trained_for(weights, images, size, steps):
            with tqdm(total=steps, unit="step", mininterval=2) as bar:

                def progress(step: int, steps: int, loss: float) -> None:
                    bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
                    bar.update()

                pretrain(images, size, weights, steps, progress=progress)
    compute(workload, images, weights, manifest)


def compute(workload: ImageWorkload, images: Samples, weights: Path, manifest: Path) -> None:
    """Embed images by the network with these weights and write the arrays and the manifest, as `prepare` does.

    Raises:
        UserError: the weights are missing, damaged or those of another network.
    """
    resnet.read_weights(weights)
    scaling = resnet.scaling_for(workload.weights, workload.image_size, images)
    identity = store.identity_of(
        workload,
        images.digest(),
        FEATURES_VERSION,
        classes=images.names,
        normalisation={"pixel_mean": scaling.mean, "pixel_std": scaling.std, "floor": FLOOR},
        shared=images.shared()[0],
        weights_hash=sha256(weights),
    )
    files = FILES + NETWORK_FILES
    store.publish(manifest, identity, files, lambda folder: _fill(folder, images, scaling, weights))


def _fill(folder: Path, images: Samples, scaling: resnet.PixelScaling, weights: Path) -> dict[str, Any]:
    """Write the files of the embeddings; return the number of samples and of features."""
    shutil.copyfile(weights, folder / "weights.safetensors")
    network = resnet.network_from(folder / "weights.safetensors", len(scaling.mean))
    start = time.perf_counter()
    with resnet.fixed_threads():
        embeddings = resnet.embed(network, images.values, scaling)
    seconds = time.perf_counter() - start
    means, deviations = prepared.statistics(embeddings[images.splits["train"]])
    floor = FLOOR * deviations.mean()
    mean = means.astype(np.float32)
    std = np.maximum(deviations, floor if floor > 0 else 1.0).astype(np.float32)
    np.save(folder / "pixels.npy", images.values)
    scales = {"peak": images.peak, "pixel_mean": scaling.mean, "pixel_std": scaling.std}
    norm = {**scales, "feature_mean": mean, "feature_std": std}
    write_atomic(folder / "timing.json", json.dumps({"embed_seconds": round(seconds, 3)}).encode())
    return prepared.write(folder, (embeddings - mean) / std, images.targets, images.splits, norm)


def _trained_for(weights: Path, images: Samples, size: int, steps: int) -> bool:
    """Whether these weights were trained on these images with this split: others have seen test images."""
    if not weights.exists():
        return False
    _, origin = resnet.read_weights(weights)
    return origin == origin_of(images, size, steps)
