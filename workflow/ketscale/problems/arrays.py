"""Reads arrays from .npz files and checks them before use. Pickles are never loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short

# Double precision has all whole numbers up to this one.
EXACT = 2**53


class Source(NamedTuple):
    """An array, and its name in errors."""

    values: NDArray[Any]
    where: str


def read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name.

    Raises:
        UserError: the file is damaged.
    """
    with damaged(f"{path}: cannot be read", "save it with numpy.savez"), open(path, "rb") as file:
        content = np.load(file)
        return {name: _array(content, name) for name in content.files}


def _array(content: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """An array of an archive; of Python's objects none, which is refused only where it is wanted."""
    try:
        return content[name]
    except ValueError:
        return np.array(None)


def chosen(
    there: Mapping[str, Any], wanted: Mapping[str, Sequence[str]], optional: Container[str], where: str
) -> dict[str, Source]:
    """The wanted arrays among those that are there, under the keys of `wanted`.

    wanted: for each array the names that it may have, e.g. {'labels': ('labels', 'y')}; exactly one of them must be there.
    optional: keys of arrays that may be missing.

    Raises:
        UserError: one is missing or there twice, or is no array of numbers or text.
    """
    found = {}
    for what, names in wanted.items():
        own = sorted(name for name in there if name in names)
        if len(own) > 1:
            raise UserError(f"{where}: has both {own[0]} and {own[1]}; keep one")
        if own:
            with damaged(f"{where}: {own[0]}: is no array", "give numbers or text"):
                array = np.asarray(there[own[0]])
            if array.dtype.hasobject and all(isinstance(value, str) for value in array.flat):
                array = array.astype(str)
            if array.dtype.hasobject or np.ma.is_masked(there[own[0]]):
                raise UserError(
                    f"{where}: {own[0]}: holds Python objects or gaps, or is damaged; save numbers or text"
                )
            found[what] = Source(array, f"{where}: {own[0]}")
        elif what not in optional:
            has = short(", ".join(there)) or "none"
            raise UserError(
                f"{where}: has no array called {' or '.join(names)} (it has {has}); give it that name"
            )
    return found


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
