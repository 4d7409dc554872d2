"""Reads the idx format, that of MNIST and of data sets modelled on it.

A file has two zero bytes, the type, the number of dimensions, each dimension as a big-endian 32-bit integer, then the
data, big-endian in C order. Source: Y. LeCun, "The MNIST database of handwritten digits".
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, short
from ketscale.files import opened

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_DIMENSIONS = 4  # those of images in colour
_PIECE = 1 << 20


def read(path: Path) -> NDArray[Any]:
    """The array in an idx file, gzipped or not, in the machine's byte order.

    Raises:
        UserError: the file cannot be read or is damaged.
    """
    try:
        with opened(path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not packed:
                return _array(file, path)
            with gzip.open(file) as unpacked:
                return _array(unpacked, path)
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        raise UserError(f"{path}: cannot be read ({short(error)}); fetch or copy it again") from None


def header(shape: tuple[int, ...]) -> bytes:
    """The first bytes of a file that holds bytes of this shape."""
    return struct.pack(f">4B{len(shape)}I", 0, 0, 0x08, len(shape), *shape)


def _array(file: IO[bytes] | gzip.GzipFile, path: Path) -> NDArray[Any]:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\x00\x00" or start[2] not in _TYPES:
        raise UserError(
            f"{path}: is not an idx file (it starts with {start.hex() or 'nothing'}); fetch or copy it again"
        )
    kind, dimensions = np.dtype(_TYPES[start[2]]), start[3]
    sizes = file.read(4 * dimensions)
    # Python's integers do not overflow.
    shape = struct.unpack(f">{len(sizes) // 4}I", sizes[: len(sizes) // 4 * 4])
    promised = kind.itemsize * math.prod(shape)
    if not 1 <= dimensions <= MOST_DIMENSIONS or len(sizes) < 4 * dimensions or not promised:
        raise UserError(
            f"{path}: its header gives {dimensions} dimensions with the sizes {short(shape)}, which is no array of 1 to "
            f"{MOST_DIMENSIONS} dimensions; fetch or copy it again"
        )
    data = bytearray()
    # Piece by piece, and at most a byte more than promised: neither a header nor a packed file takes all memory.
    while len(data) <= promised and (piece := file.read(min(_PIECE, promised + 1 - len(data)))):
        data += piece
    if len(data) != promised:
        found = "more" if len(data) > promised else f"{len(data):,}"
        raise UserError(
            f"{path}: its header gives {promised:,} bytes of data, but it has {found}; fetch or copy it again"
        )
    return np.frombuffer(data, kind).reshape(shape).astype(kind.newbyteorder("="), copy=False)
