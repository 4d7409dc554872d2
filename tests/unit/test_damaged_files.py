"""Files that are made to take all memory, or by mistake would, end in one short error and take little of it.

Random damage to every kind of file: tests/property.
"""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.errors import UserError, short
from ketscale.problems.images import idx
from tests.own_files import ANIMALS, VECTORS, loaded, npy

MUCH, LITTLE_MEMORY = 40 << 20, 16 << 20


def header(*sizes: int) -> bytes:
    return struct.pack(f">4B{len(sizes)}I", 0, 0, 8, len(sizes), *sizes)


def refused(read: Callable[[], Any], name: str) -> None:
    """Check that reading takes little memory and ends in a short error that names the file."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=name) as raised:
            read()
        assert tracemalloc.get_traced_memory()[1] < LITTLE_MEMORY
    finally:
        tracemalloc.stop()
    assert len(str(raised.value).splitlines()) == 1 and len(str(raised.value)) < 400


# The product of the second is 2^64, which is 0 in an integer of 64 bits.
def test_an_idx_file_is_read_no_further_than_its_header_promises(tmp_path: Path) -> None:
    path = tmp_path / "x"
    few, many = header(2**32 - 1, 2**32 - 1, 2**32 - 1) + b"1234", header(2, 2) + bytes(MUCH)
    for content in (few, header(2**31, 2**31, 4), many, gzip.compress(few), gzip.compress(many, 1)):
        path.write_bytes(content)
        refused(lambda: idx.read(path), str(path))


def array(values: Any, more: bytes = b"") -> bytes:
    """The .npy file of an array."""
    made = io.BytesIO()
    np.save(made, values)
    return made.getvalue() + more


def promising(shape: str) -> bytes:
    """An .npy file of 40 numbers whose header gives this shape."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(320)


def test_arrays_are_read_no_further_than_their_headers_promise(tmp_path: Path) -> None:
    pair = {"features": str(tmp_path / "x.npy"), "labels": npy(tmp_path, "y.npy", ANIMALS)}
    for content in (array(VECTORS, bytes(MUCH)), promising("(900719925474, 7)"), promising("(" * 3000)):
        with zipfile.ZipFile(tmp_path / "mine.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            file.writestr("x.npy", content)
            file.writestr("y.npy", array(ANIMALS))
        refused(lambda: loaded({"kind": "arrays", "file": str(tmp_path / "mine.npz")}), "mine.npz: x")
        (tmp_path / "x.npy").write_bytes(content)
        refused(lambda: loaded({"kind": "arrays", **pair}), "x.npy")


def test_what_a_library_says_becomes_one_short_line() -> None:
    assert short("two\n lines\x1b" + "x" * 500) == r"two lines\x1b" + "x" * 106 + "…"
