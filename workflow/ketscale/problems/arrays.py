"""Reads arrays from .npz and .npy files and checks them before use. Pickles are never loaded."""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
import zipfile
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short
from ketscale.files import opened

_ZIP, _NPY = b"PK", b"\x93NUMPY"
# Double precision has all whole numbers up to this one.
EXACT = 2**53
# The versions of the format that NumPy writes for numbers and text.
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Source(NamedTuple):
    """An array, and its name in errors."""

    values: NDArray[Any]
    where: str


def read_npy(path: Path) -> NDArray[Any]:
    """The array in an .npy file.

    Raises:
        UserError: the file is not an .npy file, is damaged, or holds Python objects.
    """
    with _readable(str(path)), opened(path) as file:
        start = file.read(len(_NPY))
        if start.startswith(_ZIP):
            raise UserError(f"{path}: is an .npz archive, not an .npy file; give it as file instead")
        if start != _NPY:
            raise UserError(f"{path}: is not a file of arrays; save it with numpy.save")
        file.seek(0)
        return _array(file, path.stat().st_size, str(path))


def read_npz(
    path: Path,
    wanted: Mapping[str, Sequence[str]],
    optional: Container[str] = (),
    check: Callable[[Sequence[str]], None] | None = None,
) -> dict[str, Source]:
    """The wanted arrays of an .npz file, under the keys of `wanted`.

    wanted: for each array the names that it may have in the file, e.g. {'labels': ('labels', 'y')}; exactly one of
        them must be there. optional: keys of arrays that may be missing. check: is called with the names of all
        arrays in the file before any is read, to refuse it.

    Raises:
        UserError: the file is damaged, or an array is missing, is there twice, or holds Python objects.
    """
    found = {}
    with _readable(str(path)), opened(path) as whole:
        start = whole.read(len(_NPY))
        if start == _NPY:
            raise UserError(f"{path}: is a single array, not an .npz archive; save it with numpy.savez")
        if not start.startswith(_ZIP):
            raise UserError(f"{path}: is not a file of arrays; save it with numpy.savez")
        with zipfile.ZipFile(whole) as archive:
            members = [
                member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")
            ]
            if check is not None:
                check(members)
            for what, name in chosen(members, wanted, optional, str(path)).items():
                where, member = f"{path}: {name}", f"{name}.npy"
                with _readable(where), archive.open(member) as file:
                    found[what] = Source(_array(file, archive.getinfo(member).file_size, where), where)
    return found


def chosen(
    there: Sequence[str], wanted: Mapping[str, Sequence[str]], optional: Container[str], where: str
) -> dict[str, str]:
    """The names of the wanted arrays among those that are there, under the keys of `wanted`; as for `read_npz`.

    Raises:
        UserError: one is missing or there twice.
    """
    found = {}
    for what, names in wanted.items():
        own = sorted(name for name in there if name in names)
        if len(own) > 1:
            raise UserError(f"{where}: has both {own[0]} and {own[1]}; keep one")
        if own:
            found[what] = own[0]
        elif what not in optional:
            has = short(", ".join(there)) or "none"
            raise UserError(
                f"{where}: has no array called {' or '.join(names)} (it has {has}); give it that name"
            )
    return found


def returned(values: Any, where: str) -> NDArray[Any]:
    """What a user's function returns as an array of numbers or text.

    Raises:
        UserError: it is none.
    """
    if np.ma.is_masked(values):
        raise UserError(f"{where}: holds masked values; leave such samples out, or fill them in")
    with damaged(f"{where}: is no array", "return numbers or text"), warnings.catch_warnings():
        warnings.simplefilter("error")
        array = np.asarray(values)
    if array.dtype.hasobject and all(isinstance(value, str) for value in array.flat):
        return array.astype(str)
    if array.dtype.hasobject:
        raise UserError(f"{where}: holds Python objects; return numbers or text")
    return array


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in an .npz file by name, or of that in an .npy file as ''; values stay unread.

    Raises:
        UserError: the file is damaged.
    """
    with _readable(str(path)), opened(path) as whole:
        if whole.read(len(_NPY)) == _NPY:
            whole.seek(0)
            return {"": _header(whole)[0]}
        found = {}
        with zipfile.ZipFile(whole) as archive:
            for member in archive.namelist():
                if member.endswith(".npy"):
                    with archive.open(member) as file:
                        found[member.removesuffix(".npy")] = _header(file)[0]
        return found


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array in an .npy stream, from its beginning."""
    shape, _, kind = _HEADERS[np.lib.format.read_magic(file)](file)
    return shape, kind


def _array(file: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """The array of an .npy stream of `size` bytes. The size is compared with the header before memory is taken."""
    shape, kind = _header(file)
    if kind.hasobject:
        raise UserError(
            f"{where}: holds Python objects, which are never loaded; save numbers or text, "
            "e.g. numpy.array(values, dtype=str)"
        )
    promised = file.tell() + kind.itemsize * math.prod(shape)
    if size != promised:
        raise UserError(
            f"{where}: has {size:,} bytes, but its header gives {promised:,}; save or copy it again"
        )
    file.seek(0)
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    # NumPy keeps text as numbers of characters, of which not all there are can become Python's text.
    characters = np.frombuffer(array.tobytes(), kind.str[0] + "u4") if kind.kind == "U" else np.zeros(0)
    if (characters > sys.maxunicode).any():
        raise UserError(f"{where}: has characters that do not exist, so it is damaged; save or copy it again")
    return array


def _readable(where: str) -> AbstractContextManager[None]:
    """NumPy's and zipfile's parsers raise errors of any type on a damaged header."""
    return damaged(f"{where}: cannot be read", "save or copy it again")


def real(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Return the array, unchanged, if all its values are finite real numbers, which double precision can hold.

    where: the array's name in errors.

    Raises:
        UserError: the array has another type, or holds too large whole numbers, NaN or infinity, whose index is given.
    """
    if array.dtype.kind not in "buif":
        raise UserError(
            f"{where}: holds {short(array.dtype)}, not real numbers; save it as float32 or float64"
        )
    if array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > EXACT:
        raise UserError(
            f"{where}: holds whole numbers that double precision rounds; save them in another unit"
        )
    if array.dtype.kind == "f":
        finite = np.isfinite(array)
        if not finite.all():
            place = [int(index) for index in np.unravel_index(finite.argmin(), array.shape)]
            raise UserError(
                f"{where}: holds NaN or infinity at {place}; leave such samples out, or fill them in"
            )
    return array


def single(array: NDArray[Any], where: str) -> NDArray[np.float32]:
    """The array as float32.

    Raises:
        UserError: as for `real`, or a number is too large for float32.
    """
    with np.errstate(over="ignore"):
        return real(real(array, where).astype(np.float32), f"{where} in single precision")


def digest(arrays: Iterable[NDArray[Any]], head: str = "") -> str:
    """SHA-256 of `head` and of the arrays' types, shapes and values, in the order given."""
    total = hashlib.sha256(head.encode())
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
