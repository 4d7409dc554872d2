"""Damage to data files of every kind that a family reads, and what a reader may make of it: data, or one clear error.

A case is a workload with sound files. Each fault is a function of the seed and its number, and damages one of the
files: its bytes, or what a checksum in it protects, with the checksum made right again.
"""

from __future__ import annotations

import gzip
import io
import resource
import signal
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from ketscale.errors import UserError
from ketscale.problems.eeg.workloads import eeg_file
from ketscale.problems.images.resnet import read_weights, write_weights
from ketscale.problems.registry import workload_of
from ketscale.problems.sentences.sentences import Sentences
from ketscale.problems.sentences.sentences import read as read_sentences
from tests.own_files import ANIMALS, COLOUR, GREY, NETWORK, SIGNALS, VECTORS, idx, npy, npz, pictures
from tests.problems.eeg.edf_factory import RATE, write_edf

LONGEST_S, MORE_MEMORY = 30, 2 << 30
LONGEST_MESSAGE, MOST_LINES = 500, 2
# Limits of integers, and what the headers of text are made of.
MARKS = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\xff" * 4,
    b"\x00" * 4,
    b"\x80\x00\x00\x00",
    b"9",
    b"-",
    b" ",
    b"\n",
    b"(" * 5000,
)


class Part(NamedTuple):
    """What is damaged: a content, and how the file is made of it."""

    file: Path
    content: bytes
    whole: Callable[[bytes], bytes]


class Case(NamedTuple):
    """Reads files as a family does, and what is damaged of them."""

    read: Callable[[], Any]
    parts: list[Part]


class Late(BaseException):
    """Raised in a reader that takes too long; no reader catches it."""


def faulty(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with one to three faults, most of them near its start, where headers are."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = min(
            len(data), int(len(data) ** rng.random() if rng.random() < 0.7 else rng.integers(len(data) + 1))
        )
        end = min(len(data), at + int(rng.integers(1, 64)))
        match rng.integers(7):
            case 0 if at < end:
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                mark = MARKS[rng.integers(len(MARKS))]
                data[at : at + len(mark)] = mark
            case 2:
                del data[at:]
            case 3:
                data += rng.bytes(int(rng.integers(1, 4096)))
            case 4:
                del data[at:end]
            case 5:
                data[at:at] = data[at:end] * int(rng.integers(1, 4))
            case _:
                data[at:end] = rng.bytes(end - at)
    return bytes(data)


def mutations(case: Case, seed: int, count: int) -> Iterator[str]:
    """Damage the parts of a case, one fault after another, and give in words each outcome that may not be.

    Raises:
        UserError: the sound files are refused, so that the case tests nothing.
    """
    case.read()
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        file, content, whole = case.parts[rng.integers(len(case.parts))]
        sound = file.read_bytes()
        file.write_bytes(whole(faulty(content, rng)))
        fault = misbehaviour(case.read)
        if fault:
            yield f"seed {seed}, number {number}, {file.name}: {fault}"
        file.write_bytes(sound)


def misbehaviour(read: Callable[[], Any]) -> str:
    """What a reader of damaged files may not do; empty if it gave data or one clear error."""
    try:
        with bounded():
            read()
    except UserError as error:
        lines = str(error).split("\n")
        if (
            len(str(error)) > LONGEST_MESSAGE
            or len(lines) > MOST_LINES
            or not all(map(str.isprintable, lines))
        ):
            return f"a message of {len(str(error))} characters and {len(lines)} lines: {str(error)[:200]!r}"
    except (Exception, Late) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


@contextmanager
def bounded() -> Iterator[None]:
    """At most LONGEST_S, and MORE_MEMORY beyond what there is."""

    def late(*_: object) -> None:
        raise Late(f"more than {LONGEST_S} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_MEMORY, before[1]))
    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
        resource.setrlimit(resource.RLIMIT_AS, before)


# --- the cases ---


def _of(block: dict[str, Any]) -> Callable[[], Any]:
    """Reads what the workload of this block does when it is prepared."""

    def read() -> Any:
        workload = workload_of(block, "workloads.mine")
        workload.sources()
        return workload.load(None)  # type: ignore[attr-defined]

    return read


def _plain(*files: str | Path) -> list[Part]:
    """The bytes of files."""
    return [Part(Path(file), Path(file).read_bytes(), bytes) for file in files]


def _gzipped(*files: str) -> list[Part]:
    """What gzipped files hold."""
    return [Part(Path(file), gzip.decompress(Path(file).read_bytes()), gzip.compress) for file in files]


def _members(file: str) -> list[Part]:
    """The members of a zip archive."""

    def part(name: str) -> Part:
        def whole(content: bytes) -> bytes:
            made = io.BytesIO()
            with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
                for other, kept in members.items():
                    archive.writestr(other, content if other == name else kept)
            return made.getvalue()

        return Part(Path(file), members[name], whole)

    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return [part(name) for name in members]


def _png(file: Path) -> Part:
    """A PNG whose chunks get the right checksums."""

    def whole(content: bytes) -> bytes:
        made, at = bytearray(content[:8]), 8
        while at + 12 <= len(content):
            (length,) = struct.unpack_from(">I", content, at)
            chunk = content[at + 4 : at + 8 + length]
            made += struct.pack(">I", length) + chunk + struct.pack(">I", zlib.crc32(chunk))
            at += 12 + length
        return bytes(made)

    return Part(file, file.read_bytes(), whole)


def _arrays(folder: Path) -> Case:
    file = npz(folder, x=VECTORS, y=ANIMALS)
    return Case(_of({"kind": "arrays", "file": file}), _plain(file) + _members(file))


def _npy(folder: Path) -> Case:
    images, labels = npy(folder, "x.npy", COLOUR), npy(folder, "y.npy", ANIMALS)
    return Case(
        _of({"kind": "arrays", "images": images, "labels": labels, **NETWORK}), _plain(images, labels)
    )


def _given(folder: Path) -> Case:
    split = np.repeat(["train", "validation", "test"], [20, 12, 8])
    file = npz(folder, x=VECTORS, y=ANIMALS, split=split)
    return Case(_of({"kind": "arrays", "file": file, "split": "given"}), _members(file))


def _idx(folder: Path) -> Case:
    numbers = np.arange(40, dtype=np.uint8) % 4
    files = {
        "images": idx(folder, "x", GREY),
        "labels": idx(folder, "y", numbers),
        "test_images": idx(folder, "tx", GREY[:9], packed=True),
        "test_labels": idx(folder, "ty", numbers[:9], packed=True),
    }
    parts = _plain(*files.values()) + _gzipped(files["test_images"], files["test_labels"])
    return Case(_of({"kind": "idx", **files, **NETWORK}), parts)


def _pictures(folder: Path) -> Case:
    pictures(folder)
    other = np.full((9, 12, 3), 7, np.uint8)
    for suffix in ("jpg", "gif", "bmp", "tif", "webp", "ppm"):
        Image.fromarray(other).save(folder / "day" / f"a.{suffix}")
    files = sorted(folder.glob("*/[0-9a]*.*"))
    return Case(
        _of({"kind": "image-folder", "folder": str(folder), **NETWORK}),
        [*_plain(*files), *(_png(file) for file in files if file.suffix == ".png")],
    )


def _series(folder: Path) -> Case:
    people = np.repeat(["anna", "ben", "cleo", "dan", "eve"], 8)
    file = npz(folder, x=SIGNALS, y=np.tile([1, 2], 20), groups=people)
    return Case(
        _of({"kind": "series", "file": file, "split": "groups", "standardise": True}),
        _plain(file) + _members(file),
    )


def _edf(folder: Path) -> Case:
    rng = np.random.default_rng(0)
    cues = [(1.0, "T1"), (4.0, "T2"), (7.0, "T1"), (10.0, "T2")]
    files = [folder / eeg_file(1, run) for run in (4, 8, 12)]
    for file in files:
        write_edf(file, 50 * rng.normal(size=(64, 15 * RATE)), cues)
    block = {
        "kind": "eegmmidb", "folder": str(folder), "subjects": [1], "runs": [4, 8, 12], "rate": 40, "window": [0.5, 2.5],
        "split": "runs", "split_seed": 0, "standardise": True,
    }  # fmt: skip
    return Case(_of(block), _plain(files[0]))


def _sentences(folder: Path) -> Case:
    file = folder / "text.txt"
    file.write_text(
        "The bird sings\nÜber den Wolken\nold ships cross cold water\n歩 く 人\n", encoding="utf-8"
    )
    return Case(lambda: Sentences.of(read_sentences(file)), _plain(file))


def _weights(folder: Path) -> Case:
    file = folder / "weights.safetensors"
    write_weights(file, {"a": torch.arange(6.0), "b": torch.ones(2, 3)}, {"kind": "selfsupervised"})
    return Case(lambda: read_weights(file), _plain(file))


CASES: dict[str, Callable[[Path], Case]] = {
    "arrays": _arrays,
    "npy": _npy,
    "given": _given,
    "idx": _idx,
    "image-folder": _pictures,
    "series": _series,
    "eegmmidb": _edf,
    "sentences": _sentences,
    "weights": _weights,
}
