"""Reads the idx format, that of MNIST and of data sets modelled on it.

A file has two zero bytes, the type, the number of dimensions, each dimension as a big-endian 32-bit integer, then the
data, big-endian in C order. Source: Y. LeCun, "The MNIST database of handwritten digits".
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read(path: Path) -> NDArray[Any]:
    """The array in an idx file, gzipped or not, in the machine's byte order.

    Raises:
        UserError: the file cannot be read or is damaged.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}); fetch or copy it again") from None
    if len(data) < 4 or data[:2] != b"\x00\x00" or data[2] not in _TYPES:
        raise UserError(
            f"{path}: is not an idx file (it starts with {data[:4].hex() or 'nothing'}); fetch or copy it again"
        )
    kind = np.dtype(_TYPES[data[2]])
    start = 4 + 4 * data[3]
    shape = tuple(int(size) for size in np.frombuffer(data[4:start], ">u4")) if len(data) >= start else ()
    expected = start + kind.itemsize * int(np.prod(shape, dtype=np.int64))
    if not shape or len(data) != expected:
        raise UserError(
            f"{path}: has {len(data):,} bytes, but its header gives {expected:,}; fetch or copy it again"
        )
    array = np.frombuffer(data, kind, offset=start).reshape(shape)
    return array.astype(kind.newbyteorder("="), copy=False)
