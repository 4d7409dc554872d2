"""Handwritten digits: MNIST's original idx files, local or fetched with their checksums, and scikit-learn's scans."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short
from ketscale.optional import needed_for
from ketscale.problems.samples import Samples
from ketscale.problems.splits import stratified

if TYPE_CHECKING:
    from ketscale.problems.images.specification import Digits, Mnist

PEAK = 255
DIGITS_PEAK = 16  # the scans have 17 levels of ink, 0..16, which are kept exactly
DIGITS_HELD_OUT = 180  # scans for validation, and the same number for the test
VALIDATION = 6_000  # taken from the 60,000 training images
HELD_OUT = 1_000  # of the 10,000 test images, each for validation and test, if only these are used
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
# Checksums of the unpacked files: others may have gzipped them with another result, or not at all.
CONTENT_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def digits(workload: Digits, fetched: Path | None = None) -> Samples:
    """The scans, split 1,437/180/180 with each digit's share in every part."""
    with needed_for("workload digits", "images"):
        from sklearn.datasets import load_digits

    scans = load_digits()
    labels = scans.target.astype(np.int64)
    rest, test = stratified(labels, np.arange(len(labels)), DIGITS_HELD_OUT, workload.split_seed)
    train, validation = stratified(labels, rest, DIGITS_HELD_OUT, workload.split_seed)
    splits = {"train": train, "validation": validation, "test": test}
    pixels = scans.images.astype(np.uint8)
    return Samples(values=pixels, targets=labels, names=tuple("0123456789"), folds=[splits], peak=DIGITS_PEAK)


def of_workload(workload: Mnist, fetched: Path | None) -> Samples:
    """MNIST from the workload's folder, or from the fetched files; raises as `load`."""
    folder = Path(workload.folder).expanduser() if workload.folder is not None else fetched
    if folder is None:
        raise UserError("workloads: mnist needs its idx files; run the rule fetch, or set folder")
    return load(workload.files(folder), workload.split_seed)


def load(files: Sequence[Path], split_seed: int) -> Samples:
    """MNIST from its idx files, gzipped or not: images and labels for training, then for the test, or only these.

    All four give 54,000/6,000/10,000 images, those of the test alone 8,000/1,000/1,000.

    Raises:
        UserError: a file is damaged, or not the published one.
    """
    read = [_published(path) for path in files]
    pixels, labels = np.concatenate(read[::2]), np.concatenate(read[1::2]).astype(np.int64)
    if len(files) == 2:
        rest, test = stratified(labels, np.arange(len(labels)), HELD_OUT, split_seed)
        train, validation = stratified(labels, rest, HELD_OUT, split_seed)
    else:
        train, validation = stratified(labels, np.arange(len(read[0])), VALIDATION, split_seed)
        test = np.arange(len(read[0]), len(labels))
    splits = {"train": train, "validation": validation, "test": test}
    return Samples(values=pixels, targets=labels, names=tuple("0123456789"), folds=[splits], peak=PEAK)


def _published(path: Path) -> NDArray[np.uint8]:
    """The array in an idx file, which must be the published one: two zero bytes, type, dimensions, their sizes, and the bytes."""
    with damaged(f"{path}: cannot be read", "fetch or copy it again"):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    if hashlib.sha256(content).hexdigest() != CONTENT_SHA256[path.name.removesuffix(".gz")]:
        raise UserError(f"{path}: is not the file that was published as MNIST; fetch or copy it again")
    start = 4 + 4 * content[3]
    return np.frombuffer(content, np.uint8, offset=start).reshape(np.frombuffer(content[4:start], ">u4"))


def fetch(folder: Path, mirror: str = MIRROR) -> list[Path]:
    """Download the four original files into `folder` with pooch, which verifies their checksums, and return their paths.

    Files that are there and intact are kept.

    Raises:
        UserError: the network, the disk or a checksum fails; nothing of the failed file is left behind.
    """
    with needed_for("workload mnist without a folder", "images"):
        import pooch

    for name, digest in SHA256.items():
        try:
            pooch.retrieve(f"{mirror}/{name}", f"sha256:{digest}", name, folder)
        except (OSError, ValueError) as error:
            raise UserError(f"{mirror}/{name}: cannot be fetched ({short(error)}); set folder") from None
    return [folder / name for name in SHA256]
