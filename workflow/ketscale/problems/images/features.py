"""A user's own images; and cached embeddings, computed once and kept with their images and the network that made them.

Embeddings are standardised: each of the 512 features has mean 0 and standard deviation 1 over the training
split (labels are not used). The inline backbone applies the same constants.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from ketscale.config import Data, Settings, Split
from ketscale.errors import UserError
from ketscale.files import sha256, write_atomic
from ketscale.problems import own_samples, splits, store
from ketscale.problems.datasets import Dataset
from ketscale.problems.images import resnet
from ketscale.problems.images.pixels import GREY, mode_of, pixels_of, resized
from ketscale.problems.images.pretrain import origin_of, pretrain
from ketscale.problems.images.specification import (
    IMAGENET_FILE,
    PRETRAIN_STEPS,
    Arrays,
    ImageFolder,
    ImageWorkload,
)
from ketscale.problems.preprocessing import Pictures
from ketscale.problems.samples import Samples
from ketscale.problems.vectors import prepared
from ketscale.problems.vectors.prepared import FILES

FEATURES_VERSION = 3  # increase it whenever the arithmetic or the files below change
NETWORK_FILES = ("pixels.npy", "weights.safetensors")
ARRAYS = {"samples": ("images", "x"), "labels": ("labels", "y")}
FLOOR = 0.01  # of the mean deviation, so that features of the network that hardly vary are not blown up


def from_arrays(workload: Arrays, fetched: Path | None = None) -> Samples:
    """The images of an .npz file.

    Raises:
        UserError: an array is missing or damaged, or has another shape or type; or a class has too few samples.
    """
    there = own_samples.read(workload, ARRAYS)
    return own_samples.divided(workload, there, pixels_of(*there["samples"]), "sample", 255)


def from_folder(workload: ImageFolder, fetched: Path | None = None) -> Samples:
    """The images of each class's files, resized to squares of `image_size` pixels (bilinear, whatever their proportions).

    The images are grey if all files are, else all are in colour.

    Raises:
        UserError: a file is damaged, transparent or animated, or has more than 8 bits a channel; or a class has too
            few files.
    """
    files = workload.files()
    classes = tuple(files)
    labels = np.repeat(np.arange(len(classes)), [len(paths) for paths in files.values()])
    paths = [path for of_class in files.values() for path in of_class]
    # Every file is checked, although the first one in colour determines the mode.
    mode = "L" if {mode_of(path) for path in paths} <= GREY else "RGB"
    pixels = np.stack([resized(path, mode, workload.image_size) for path in paths])
    equal = splits.first_equal(pixels)
    parts = splits.by_shares(labels, classes, workload.shares, workload.split_seed or 0, equal)
    return Samples(values=pixels, targets=labels, names=classes, folds=[parts], peak=255)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the features, and the network that made them if the run computes them inline."""
    workload, inline = settings.workload, settings.protocol.features == "inline"
    assert isinstance(workload, ImageWorkload)
    folder = store.opened(manifest, FEATURES_VERSION)
    content = dataset(folder, isinstance(workload, ImageFolder), inline)
    return folder.data(content, Split(workload.split_by, shared=folder.entries["shared"]))


def dataset(folder: store.PreparedFolder, files: bool = False, inline: bool = False) -> Dataset:
    """The embeddings, or pixels and the network that maps them to embeddings.

    files: see `Pictures`. inline: whether there are the pixels and the network.
    """
    data, norm = prepared.dataset(folder), folder.arrays("norm.npz")
    pictures = Pictures(
        names=data.names,
        size=folder.entries["settings"]["image_size"],
        files=files,
        peak=int(norm["peak"]),
        pixel_mean=tuple(norm["pixel_mean"].tolist()),
        pixel_std=tuple(norm["pixel_std"].tolist()),
        mean=tuple(norm["feature_mean"].tolist()),
        std=tuple(norm["feature_std"].tolist()),
        weights_hash=folder.entries["weights_hash"],
    )
    data = data._replace(preprocessing=pictures)
    if not inline:
        return data

    def backbone() -> resnet.Backbone:
        network = resnet.network_from(folder.path / "weights.safetensors", len(pictures.pixel_mean))
        mean, std = np.array(pictures.mean, np.float32), np.array(pictures.std, np.float32)
        return resnet.Backbone(network, pictures.scaling, mean, std)

    return data._replace(inputs=folder.array("pixels.npy"), backbone=backbone)


def prepare(workload: ImageWorkload, manifest: Path, fetched: Path | None) -> None:
    """Embed a workload's images and write the arrays, then the manifest.

    An intact folder is reused. Weights that are trained here are kept next to the manifest and reused for the same
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
        # Other weights have seen test images.
        if not weights.exists() or resnet.read_weights(weights)[1] != origin_of(images, size, steps):
            pretrain(images, size, weights, steps)
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
