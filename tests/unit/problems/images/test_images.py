"""Image data is read exactly, split by its own seed, and refused in one clear error when it is not right."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import struct
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.config import parse
from ketscale.errors import UserError
from ketscale.problems.images import mnist
from ketscale.problems.images.specification import Digits, Mnist
from ketscale.problems.samples import Samples
from ketscale.problems.splits import SPLITS
from tests import ROOT

SHARED = Path(os.environ.get("KETSCALE_SHARED", ROOT.parent / "shared"))
TEST_FILES = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DIGITS = {"split_seed": 0, "weights": "selfsupervised", "image_size": 32}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """The idx file of a uint8 array."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def made_up(count: int) -> tuple[bytes, bytes]:
    """Images and labels of the right form; the first pixel of each image counts modulo 256."""
    pixels = np.zeros((count, 28, 28), np.uint8)
    pixels[:, 0, 0] = np.arange(count) % 256
    return idx(pixels), idx(np.arange(count) % 10)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the form of the four MNIST files, one pair gzipped."""
    folder = tmp_path_factory.mktemp("mnist")
    for name, data in zip(
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), made_up(60_000), strict=True
    ):
        (folder / f"{name}.gz").write_bytes(gzip.compress(data, 1))
    for name, data in zip(TEST_FILES, made_up(10_000), strict=True):
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def published(whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, with these files as the published ones."""
    for path in whole.iterdir():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        monkeypatch.setitem(mnist.CONTENT_SHA256, path.stem, hashlib.sha256(data).hexdigest())
    return whole


def read_mnist(folder: Path, split: str, split_seed: int = 0) -> Samples:
    arguments = DIGITS | {"split": split, "split_seed": split_seed, "folder": str(folder)}
    result = parse(Mnist, arguments, "mine")
    result.sources()
    return result.load(None)


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    """A copy of the test files that a test may damage."""
    for name in TEST_FILES:
        shutil.copy(published / name, tmp_path / name)
    return tmp_path


def assert_partition(images: Samples, sizes: tuple[int, int, int]) -> None:
    assert tuple(len(images.splits[name]) for name in SPLITS) == sizes
    joined = np.concatenate([images.splits[name] for name in SPLITS])
    assert len(np.unique(joined)) == len(joined) == len(images.targets) == len(images.values)


def test_digits_are_the_scans_exactly_with_a_stratified_split() -> None:
    from sklearn.datasets import load_digits

    images, other = (Digits(**{**DIGITS, "split_seed": seed}).load(None) for seed in (0, 1))
    assert_partition(images, (1437, 180, 180))
    assert np.array_equal(images.values, load_digits().images)
    assert (images.values.dtype, images.targets.dtype, images.peak) == (np.uint8, np.int64, 16)
    assert images.names == tuple("0123456789")
    assert Digits(**DIGITS).load(None).digest() == images.digest() != other.digest()
    for name in SPLITS:
        share = np.bincount(images.targets[images.splits[name]], minlength=10) / len(images.splits[name])
        assert share == pytest.approx(np.bincount(images.targets) / len(images.targets), abs=0.01)


def test_original_split_keeps_the_test_images_apart(published: Path) -> None:
    images = read_mnist(published, "original", split_seed=3)
    assert_partition(images, (54_000, 6_000, 10_000))
    assert images.splits["test"].min() == 60_000
    assert np.array_equal(images.values[:60_000, 0, 0], np.arange(60_000) % 256)
    assert np.array_equal(images.targets[60_000:], np.arange(10_000) % 10)


def test_test_images_alone_are_enough_for_their_split(folder: Path) -> None:
    assert_partition(read_mnist(folder, "test-images"), (8_000, 1_000, 1_000))
    (fault,) = parse(Mnist, DIGITS | {"split": "test-images"}, "mine").misplaced()
    assert fault.startswith("folder: split: test-images needs")


def test_real_mnist_test_images() -> None:
    source = SHARED / "data" / "mnist"
    if not source.is_dir():
        pytest.skip(f"{source} is absent; KETSCALE_SHARED names the folder that holds data/mnist")
    images = read_mnist(source, "test-images")
    assert images.shared() == [0]
    assert_partition(images, (8_000, 1_000, 1_000))
    assert images.targets[:5].tolist() == [7, 2, 1, 0, 4]
    assert images.values.max() == 255
    for name in TEST_FILES:
        assert hashlib.sha256((source / f"{name}.gz").read_bytes()).hexdigest() == mnist.SHA256[f"{name}.gz"]


def cut_gzip(folder: Path) -> None:
    path = folder / TEST_FILES[0]
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes())[:-2000])
    path.unlink()


def one_pixel(folder: Path) -> None:
    path = folder / TEST_FILES[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut_gzip, one_pixel])
def test_files_that_are_not_those_that_were_published_are_refused_by_name(damage: Any, folder: Path) -> None:
    damage(folder)
    with pytest.raises(UserError, match=re.escape(str(folder))):
        read_mnist(folder, "test-images")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address that serves the files of a folder."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}", folder
        served.shutdown()


def test_fetch_writes_four_checked_files_keeps_whole_ones_and_replaces_damaged_ones(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address, served), folder = server, tmp_path / "mnist"
    contents = {name: f"the bytes of {name}".encode() for name in mnist.SHA256}
    for name, data in contents.items():
        (served / name).write_bytes(data)
        monkeypatch.setitem(mnist.SHA256, name, hashlib.sha256(data).hexdigest())

    def fetched() -> dict[str, bytes]:
        mnist.fetch(folder, address)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    assert fetched() == contents
    intact, damaged, *_ = contents
    (folder / damaged).write_bytes(b"half a fi")
    (served / intact).unlink()
    assert fetched() == contents
    (folder / intact).unlink()
    for page in (None, b"an error page"):
        if page:
            (served / intact).write_bytes(page)
        with pytest.raises(UserError, match=r"cannot be fetched .*set folder"):
            fetched()
        assert not (folder / intact).exists()
