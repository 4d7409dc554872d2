"""The store of cached embeddings: computed once, in a folder named by the hash of all that decides them.

A small JSON manifest points to that folder. Its bytes depend on content alone, so a run that lists the
manifest as its input retrains when the content changes, not when a file is touched.

Embeddings are standardised: each of the 512 features has mean 0 and standard deviation 1 over the training
split (labels play no part). The inline backbone applies the same constants.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.records import write_atomic
from ketscale.workloads import catalogue, resnet
from ketscale.workloads.images import SPLITS, Images

SCHEMA = 1
FEATURES_VERSION = 1  # raise it whenever the arithmetic below changes
FILES = ("embeddings.npy", "pixels.npy", "labels.npy", "splits.npz", "norm.npz", "weights.safetensors")
INNER = "manifest.json"
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
        described = _read_manifest(manifest)
        folder = manifest.parent / described["folder"]
        remedy = f"delete {folder} and {manifest} and run the features rule again"
        for name, digest in described["files"].items():
            path = folder / name
            if not path.is_file():
                raise UserError(f"{path}: missing; {remedy}")
            if verify and _sha256(path) != digest:
                raise UserError(f"{path}: damaged (its SHA-256 is not the manifest's); {remedy}")
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
        "schema": SCHEMA,
        "workload": workload,
        "settings": resolved,
        "data_hash": data_hash,
        "weights_hash": _sha256(weights),
        "code_version": FEATURES_VERSION,
        "normalisation": {"pixel_mean": scaling.mean, "pixel_std": scaling.std, "floor": FLOOR},
    }
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = manifest.parent / name
    if not _valid(folder):
        _build(folder, {**identity, "hash": name, "folder": name}, images, scaling, weights)
    write_atomic(manifest, (folder / INNER).read_bytes())


def _build(
    folder: Path, description: dict[str, Any], images: Images, scaling: resnet.Scaling, weights: Path
) -> None:
    """Write `folder` whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        temporary.chmod(0o755)
        shutil.copyfile(weights, temporary / "weights.safetensors")
        network = resnet.network_from(temporary / "weights.safetensors", len(scaling.mean))
        start = time.perf_counter()
        with resnet.fixed_threads():
            embeddings = resnet.embed(network, images.pixels, scaling)
        seconds = time.perf_counter() - start
        mean, std = _statistics(embeddings[images.splits["train"]])
        embeddings = (embeddings - mean) / std
        np.save(temporary / "embeddings.npy", embeddings)
        np.save(temporary / "pixels.npy", images.pixels)
        np.save(temporary / "labels.npy", images.labels)
        np.savez(temporary / "splits.npz", allow_pickle=False, **images.splits)
        np.savez(
            temporary / "norm.npz",
            allow_pickle=False,
            peak=np.int64(images.peak),
            pixel_mean=np.array(scaling.mean),
            pixel_std=np.array(scaling.std),
            feature_mean=mean,
            feature_std=std,
        )
        description |= {
            "samples": len(embeddings),
            "dimension": embeddings.shape[1],
            "files": {name: _sha256(temporary / name) for name in FILES},
        }
        write_atomic(temporary / "timing.json", json.dumps({"embed_seconds": round(seconds, 3)}).encode())
        write_atomic(temporary / INNER, (json.dumps(description, indent=1, sort_keys=True) + "\n").encode())
        for file in (temporary / name for name in FILES):
            _sync(file)
        if folder.exists() and not _valid(folder):
            shutil.rmtree(folder)
        if not folder.exists():
            os.rename(temporary, folder)
            _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: no such features; run the features rule, or `ketscale features`") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: not a features manifest ({error}); delete it and run the rule again"
        ) from None
    keys = {"schema", "folder", "hash", "data_hash", "weights_hash", "settings", "files", "code_version"}
    if (
        not isinstance(described, dict)
        or not keys <= described.keys()
        or set(described["files"]) != set(FILES)
    ):
        raise UserError(f"{path}: not a features manifest; delete it and run the features rule again")
    if (described["schema"], described["code_version"]) != (SCHEMA, FEATURES_VERSION):
        raise UserError(f"{path}: written by another version; delete it and run the features rule again")
    return described


def _valid(folder: Path) -> bool:
    """Whether `folder` is there with every file as its inner manifest lists it."""
    try:
        files = _read_manifest(folder / INNER)["files"]
        return all(_sha256(folder / name) == digest for name, digest in files.items())
    except (UserError, OSError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
