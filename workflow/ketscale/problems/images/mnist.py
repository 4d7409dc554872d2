"""The workload mnist: the original idx files, read from a local folder or fetched with their checksums."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.problems.images import idx
from ketscale.problems.images.images import Images
from ketscale.problems.splits import stratified

PEAK = 255
SIDE = 28
VALIDATION = 6_000  # taken from the 60,000 training images
HELD_OUT = 1_000  # of the 10,000 test images, each for validation and test, if only these are used
COUNTS = {"train": 60_000, "t10k": 10_000}
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}


def load(folder: Path, split: str, split_seed: int) -> Images:
    """MNIST from the idx files in `folder`, gzipped or not.

    split: "original" gives 54,000/6,000/10,000 and needs all four files; "test-images" gives 8,000/1,000/1,000 of the
        10,000 test images and needs only their two files.

    Raises:
        UserError: a file is missing, damaged, or not the data set's.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: there is no such folder; set the workload's folder, or leave it out to fetch MNIST"
        )
    if split == "test-images":
        pixels, labels = _pair(folder, "t10k")
        rest, test = stratified(labels, np.arange(len(labels)), HELD_OUT, split_seed)
        train, validation = stratified(labels, rest, HELD_OUT, split_seed)
    else:
        if not any(path.exists() for path in _candidates(folder, "train-images-idx3-ubyte")):
            raise UserError(
                f"{folder}: train-images-idx3-ubyte(.gz) is missing; add it, "
                "or set split: test-images to use the test images alone"
            )
        both = [_pair(folder, "train"), _pair(folder, "t10k")]
        pixels, labels = np.concatenate([p for p, _ in both]), np.concatenate([v for _, v in both])
        train, validation = stratified(labels, np.arange(COUNTS["train"]), VALIDATION, split_seed)
        test = np.arange(COUNTS["train"], len(labels))
    splits = {"train": train, "validation": validation, "test": test}
    return Images(pixels=pixels, labels=labels, splits=splits, peak=PEAK, classes=tuple("0123456789"))


def fetch(folder: Path, mirror: str = MIRROR) -> list[Path]:
    """Download the four original files into `folder`, check each against its SHA-256, and return their paths.

    Files that are there and intact are kept. A file gets its name only when it is complete.

    Raises:
        UserError: the network, the disk or a checksum fails; nothing of the failed file is left behind.
    """
    for name, digest in SHA256.items():
        target = folder / name
        if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == digest:
            continue
        _download(f"{mirror}/{name}", target, digest)
    return [folder / name for name in SHA256]


def _download(url: str, target: Path, digest: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data = answer.read()
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise UserError(
                f"{url}: SHA-256 is {found[:12]}..., not {digest[:12]}...; nothing was kept; try again later"
            )
        write_atomic(target, data)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UserError(
            f"{url}: cannot be fetched ({error}); fetch it elsewhere and set the workload's folder"
        ) from None


def _candidates(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / name, folder / f"{name}.gz"


def _find(folder: Path, name: str) -> Path:
    for path in _candidates(folder, name):
        if path.exists():
            return path
    raise UserError(
        f"{folder}: {name}(.gz) is missing; put the original idx files into the workload's folder"
    )


def _pair(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The checked images and labels of one part, "train" or "t10k"."""
    images_path, labels_path = (
        _find(folder, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1")
    )
    pixels, labels = idx.read(images_path), idx.read(labels_path)
    if pixels.shape != (COUNTS[part], SIDE, SIDE) or pixels.dtype != np.uint8:
        raise UserError(
            f"{images_path}: holds {pixels.shape} of {pixels.dtype}, not {COUNTS[part]:,} images of 28x28 bytes; fetch it again"
        )
    if labels.shape != (len(pixels),) or labels.dtype != np.uint8:
        raise UserError(
            f"{labels_path}: holds {labels.shape} of {labels.dtype}, not {len(pixels):,} bytes; "
            "fetch or copy it again"
        )
    if labels.max() > 9:
        raise UserError(
            f"{labels_path}: holds the label {labels.max()}, but labels are 0 to 9; fetch or copy it again"
        )
    return pixels, labels.astype(np.int64)
