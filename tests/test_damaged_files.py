"""Files that are damaged, or made to take all memory, end in one short error and take little of it.

Random damage to every kind of file: tests/property.
"""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ketscale.errors import UserError, short
from ketscale.problems.images import idx
from ketscale.problems.sentences import sentences
from tests.own_files import ANIMALS, GREY, NETWORK, VECTORS, loaded, npy, npz, pictures
from tests.own_files import idx as write_idx

ZEROS = bytes(100 << 20)
LITTLE_MEMORY = 16 << 20


def header(*sizes: int, dimensions: int | None = None) -> bytes:
    dimensions = len(sizes) if dimensions is None else dimensions
    return struct.pack(f">4B{len(sizes)}I", 0, 0, 8, dimensions, *sizes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(2**32 - 1, 2**32 - 1, 2**32 - 1) + b"1234", r"gives 79,228,\S+ bytes of data, but it has 4"),
        # Their product is 2^64, which is 0 in an integer of 64 bits.
        (header(2**31, 2**31, 4), r"gives 18,446,744,073,709,551,616 bytes of data, but it has 0"),
        (header(*[1] * 255) + b"1", "gives 255 dimensions with the sizes .* no array of 1 to 4 dimensions"),
        (header(dimensions=3), r"3 dimensions with the sizes \(\)"),
        (header(dimensions=0), "gives 0 dimensions"),
        (header(0, 28, 28), r"sizes \(0, 28, 28\), which is no array"),
        (header(2, 2) + b"12345", "gives 4 bytes of data, but it has more"),
        (header(2, 2) + ZEROS, "gives 4 bytes of data, but it has more"),
        (header(2**32 - 1, 2**32 - 1) + b"1", "bytes of data, but it has 1;"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_file_is_read_no_further_than_its_header_promises(
    content: bytes, message: str, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    refused(lambda: idx.read(path), message)


def refused(read: Callable[[], Any], message: str) -> None:
    """Check that reading takes little memory and ends in a short error with this message."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message) as raised:
            read()
        assert tracemalloc.get_traced_memory()[1] < LITTLE_MEMORY
    finally:
        tracemalloc.stop()
    assert len(str(raised.value).splitlines()) == 1 and len(str(raised.value)) < 400


def array(values: Any, more: bytes = b"") -> bytes:
    """The .npy file of an array."""
    made = io.BytesIO()
    np.save(made, values)
    return made.getvalue() + more


def promising(shape: str) -> bytes:
    """An .npy file of 40 numbers whose header gives this shape."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(320)


def archive(path: Path, *members: tuple[str, bytes]) -> dict[str, Any]:
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(path / "mine.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        warnings.simplefilter("ignore")  # that a name is there twice
        for name, content in members:
            file.writestr(name, content)
    return {"kind": "arrays", "file": str(path / "mine.npz")}


X, Y = ("x.npy", array(VECTORS)), ("y.npy", array(ANIMALS))
RARE = np.array(["cat"] * 39 + ["d" * 5000])


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (lambda p: archive(p, ("x.npy", array(VECTORS, ZEROS)), Y), r"x: has 104,\d+,\d+ bytes, but its header gives 2,368"),
        (lambda p: archive(p, ("x.npy", promising("(900719925474, 7)")), Y), r"x: has \d+ bytes, but its header gives 50,440,\S+;"),
        (lambda p: archive(p, X, Y, X), "has both x and x; keep one"),
        (lambda p: archive(p, ("x.npy", b"no array"), Y), "mine.npz: x: cannot be read"),
        (lambda p: archive(p, ("x", array(VECTORS)), Y), r"no array called .* \(it has y\)"),
        (lambda p: archive(p, *((f"a{i}.npy", b"") for i in range(5000))), "it has a0, a1, .*…"),
        (lambda p: archive(p, ("x.npy", array(np.zeros(40, [("long", "f4", 3)] * 1))), Y), r"shape \(40,\) is not that"),
        (lambda p: {"kind": "arrays", "file": npz(p, x=VECTORS, y=RARE)}, "class 'ddd.*… has 1 samples: after 1 for"),
        (lambda p: {"kind": "arrays", "file": npz(p, x=VECTORS, y=np.repeat("d" * 5000, 40))}, "1 class .d+….; at"),
        (lambda p: stretched(p, promising("(900719925474, 7)")), r"x.npy: has \d+ bytes, but its header gives 50,440,"),
        (lambda p: stretched(p, array(VECTORS, b"1")), "x.npy: has 2,369 bytes, but its header gives 2,368"),
        (lambda p: stretched(p, promising("(" * 3000)), "x.npy: cannot be read"),
    ],
)  # fmt: skip
def test_arrays_are_read_no_further_than_their_headers_promise(
    block: Callable[[Path], dict[str, Any]], message: str, tmp_path: Path
) -> None:
    made = block(tmp_path)
    refused(lambda: loaded(made), message)


def stretched(path: Path, content: bytes) -> dict[str, Any]:
    (path / "x.npy").write_bytes(content)
    return {"kind": "arrays", "features": str(path / "x.npy"), "labels": npy(path, "y.npy", ANIMALS)}


def test_a_class_with_one_image_is_named(tmp_path: Path) -> None:
    labels = np.arange(40, dtype=np.uint8) % 4
    labels[labels == 3] = 0
    labels[5] = 3
    block = {"images": write_idx(tmp_path, "x", GREY), "labels": write_idx(tmp_path, "y", labels)}
    with pytest.raises(
        UserError, match="class '3' has 1 samples: after 1 for validation, 1 for test none is left"
    ):
        loaded({"kind": "idx", **block, **NETWORK})


def bomb(width: int) -> bytes:
    """A PNG of width x width pixels in a few bytes."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    size = struct.pack(">IIBBBBB", width, width, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bomb(10_000), r"has more than 89,478,485 pixels; save it smaller"),
        (bomb(2_000_000), r"has more than 89,478,485 pixels; save it smaller"),
        # Pillow would hand it to an interpreter.
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not a readable image"),
    ],
)
def test_an_image_that_is_too_large_or_of_another_format_is_refused(
    content: bytes, message: str, tmp_path: Path
) -> None:
    folder = pictures(tmp_path / "folder")
    Image.init()
    (folder / "day" / "0.png").write_bytes(content)
    refused(lambda: loaded({"kind": "image-folder", "folder": str(folder), **NETWORK}), f"0.png: {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x" * (2 << 20), "line 2: 'xxx.*… is one word"),
        ("x " * (1 << 20), "line 2: has 1,048,576 words, but a sentence has at most 1,000"),
        ("\x1b[31mred", r"line 2: '\\x1b\[31mred' is one word"),
    ],
)
def test_a_long_line_is_named_in_a_short_error(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(f"the bird sings\n{line}\n")
    with pytest.raises(UserError, match=message) as raised:
        sentences.read(tmp_path / "text.txt")
    assert len(str(raised.value)) < 400


def test_what_a_library_says_becomes_one_short_line() -> None:
    assert short("two\n lines\x1b") == r"two lines\x1b"
    assert short("x" * 500) == "x" * 119 + "…"
    assert short("x" * 120) == "x" * 120
