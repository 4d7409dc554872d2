"""Reads arrays from .npz and .npy files and checks them before use. Pickles are never loaded."""

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

# A damaged archive may also seem to be encrypted (RuntimeError), to be of an unknown compression (NotImplementedError,
# one of those) or to hold an array of any size.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    MemoryError,
    zlib.error,
    zipfile.BadZipFile,
)


def read_npy(path: Path) -> NDArray[Any]:
    """The array in an .npy file.

    Raises:
        UserError: the file is not an .npy file, is damaged, or holds Python objects.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except _UNREADABLE as error:
        raise _refused(path, str(path), "numpy.save", error) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise UserError(f"{path}: is an .npz archive, not an .npy file; give it as file instead")
    return array


def read_npz(
    path: Path, wanted: Mapping[str, Sequence[str]], optional: Collection[str] = ()
) -> dict[str, NDArray[Any]]:
    """The wanted arrays of an .npz file, under the keys of `wanted`.

    wanted: for each array the names that it may have in the file, e.g. {'labels': ('labels', 'y')}; exactly one of
        them must be there.
    optional: keys of `wanted` that may be missing.

    Raises:
        UserError: the file is damaged, or an array is missing, has two of its names or holds Python objects.
    """
    found = {}
    name = ""
    try:
        # NumPy does not close a damaged archive that it has opened itself.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError(f"{path}: is a single array, not an .npz archive; save it with numpy.savez")
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
        raise _refused(path, f"{path}: {name}" if name else str(path), "numpy.savez", error) from None
    return found


def _refused(path: Path, where: str, save: str, error: Exception) -> UserError:
    if "Object arrays" in str(error):
        return UserError(
            f"{where}: holds Python objects, which are never loaded; save numbers or text, "
            "e.g. numpy.array(values, dtype=str)"
        )
    if "pickle" in str(error):
        return UserError(f"{path}: is not a file of arrays; save it with {save}")
    return UserError(f"{path}: cannot be read ({error}); save or copy it again")


def real(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Return the array, unchanged, if all its values are finite real numbers.

    where: the array's name in errors.

    Raises:
        UserError: the array has another type, or holds NaN or infinity; the error gives the index.
    """
    if array.dtype.kind not in "buif":
        raise UserError(f"{where}: holds {array.dtype}, not real numbers; save it as float32 or float64")
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


def named(array: NDArray[Any], count: int, where: str, each: str) -> NDArray[Any]:
    """Return the array if it has an integer or a string for each of `count` samples; bytes are decoded to text.

    where: the array's name in errors. each: what errors call a sample, e.g. 'image'.

    Raises:
        UserError: the shape is not (count,), or the values are neither integers nor text.
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
    """Codes 0..k-1 (n,) for the k distinct values, and these values as text in sorted order."""
    different, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, different.tolist()))


def unused_split(file: Path, split: str) -> UserError:
    """The error for a file that gives the parts where the setting `split` says how they are drawn."""
    return UserError(
        f"{file}: has an array split, but the setting split: {split} draws it; set split: given, or rename the array"
    )


def classes_of(
    array: NDArray[Any], count: int, where: str, each: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels 0..k-1 (count,) of the samples, and the names of the k classes in sorted order.

    Raises:
        UserError: as for `named`, or there are fewer than two classes.
    """
    labels, classes = coded(named(array, count, where, each))
    if len(classes) < 2:
        raise UserError(f"{where}: has {len(classes)} class ({', '.join(classes)}); at least 2 are needed")
    return labels, classes


def digest(arrays: Iterable[NDArray[Any]], head: str = "") -> str:
    """SHA-256 of `head` and of the arrays' types, shapes and values, in the order given."""
    total = hashlib.sha256(head.encode())
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
