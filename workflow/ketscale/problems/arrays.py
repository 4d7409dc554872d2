"""Arrays from .npz and .npy files, checked before anything is made of them. No pickle is ever loaded."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError

_UNREADABLE = (OSError, EOFError, ValueError, KeyError, zlib.error, zipfile.BadZipFile)


def read_npy(path: Path) -> NDArray[Any]:
    """The array in an .npy file.

    Raises:
        UserError: it is not one, is damaged, or holds Python objects.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except _UNREADABLE as error:
        raise _refused(path, str(path), "numpy.save", error) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise UserError(f"{path}: an .npz archive, not an .npy file; name it as file instead")
    return array


def read_npz(
    path: Path, wanted: Mapping[str, Sequence[str]], optional: Collection[str] = ()
) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by what they are.

    wanted: the names that each may be stored under, e.g. {'labels': ('labels', 'y')}; it must have just one of them.
    optional: those of `wanted` that may be missing.

    Raises:
        UserError: the file is damaged, an array is missing or there under two names, or holds Python objects.
    """
    found = {}
    name = "it"
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise UserError(f"{path}: a single array, not an .npz archive; save it with numpy.savez")
        with archive:
            for what, names in wanted.items():
                there = [name for name in names if name in archive.files]
                if len(there) > 1:
                    raise UserError(f"{path}: has both {there[0]} and {there[1]}; keep one")
                if not there and what not in optional:
                    raise UserError(
                        f"{path}: has no array called {' or '.join(names)} (it has {', '.join(archive.files) or 'none'}); "
                        "save it under that name"
                    )
                for name in there:
                    found[what] = archive[name]
    except _UNREADABLE as error:
        raise _refused(path, f"{path}: {name}", "numpy.savez", error) from None
    return found


def _refused(path: Path, where: str, save: str, error: Exception) -> UserError:
    if "Object arrays" in str(error):
        return UserError(
            f"{where}: holds Python objects, which are never loaded; save numbers or text, "
            "e.g. numpy.array(values, dtype=str)"
        )
    if "pickle" in str(error):
        return UserError(f"{path}: not a file of arrays; save it with {save}")
    return UserError(f"{path}: cannot be read ({error}); save or copy it again")


def real(array: NDArray[Any], where: str) -> NDArray[Any]:
    """The array, if it holds finite real numbers.

    Raises:
        UserError: it holds something else, NaN or infinity; says where.
    """
    if array.dtype.kind not in "buif":
        raise UserError(f"{where}: holds {array.dtype}, not real numbers; save it as float32 or float64")
    if array.dtype.kind == "f":
        finite = np.isfinite(array)
        if not finite.all():
            place = [int(index) for index in np.unravel_index(finite.argmin(), array.shape)]
            raise UserError(f"{where}: NaN or infinity at {place}; leave such samples out, or fill them in")
    return array


def single(array: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Finite real numbers in single precision.

    Raises:
        UserError: as for `real`; or a number is too large.
    """
    with np.errstate(over="ignore"):
        return real(real(array, where).astype(np.float32), f"{where} in single precision")


def named(array: NDArray[Any], count: int, where: str, each: str) -> NDArray[Any]:
    """One whole number or text for each of `count` samples.

    each: a sample, for errors, e.g. 'image'.

    Raises:
        UserError: another shape or type.
    """
    if array.shape != (count,):
        raise UserError(
            f"{where}: has shape {array.shape}, but there are {count:,} {each}s; give one value each"
        )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind not in "buiU":
        raise UserError(f"{where}: holds {array.dtype}; save whole numbers or text")
    return array


def coded(values: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Numbers 0..k-1 in place of k different values, and the values in their order as text."""
    different, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, different.tolist()))


def classes_of(
    array: NDArray[Any], count: int, where: str, each: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels 0..k-1 of `count` samples, and the names of the k classes in their order.

    Raises:
        UserError: as for `named`; or there are fewer than two classes.
    """
    labels, classes = coded(named(array, count, where, each))
    if len(classes) < 2:
        raise UserError(f"{where}: {len(classes)} class ({', '.join(classes)}); at least 2 are needed")
    return labels, classes


def digest(arrays: Iterable[NDArray[Any]], head: str = "") -> str:
    """SHA-256 over the arrays' types, shapes and values, in their order."""
    total = hashlib.sha256(head.encode())
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
