"""Reads arrays from .npz files and checks them before use: numbers, and the names of labels and groups.

Pickles are never loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short


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


def _array(content: Mapping[str, Any], name: str) -> NDArray[Any]:
    """An array of an archive; None for one of Python objects, which is an error only where it is used."""
    try:
        return np.asarray(content[name])  # of a member whose head is damaged NumPy gives the bytes
    except ValueError:
        return np.array(None)


def select(
    there: Mapping[str, NDArray[Any]],
    aliases: Mapping[str, Sequence[str]],
    optional: Container[str],
    where: str,
) -> dict[str, Source]:
    """The wanted arrays among those that are there, under the keys of `aliases`.

    aliases: for each array the names that it may have, e.g. {'labels': ('labels', 'y')}; exactly one of them must be there.
    optional: keys of arrays that may be missing.

    Raises:
        UserError: one is missing or there twice.
    """
    sources = {}
    for what, names in aliases.items():
        own = sorted(name for name in there if name in names)
        if len(own) > 1:
            raise UserError(f"{where}: has both {own[0]} and {own[1]}; keep one")
        if own:
            if there[own[0]].dtype.hasobject:
                raise UserError(f"{where}: {own[0]}: holds Python objects; save numbers or text")
            sources[what] = Source(there[own[0]], f"{where}: {own[0]}")
        elif what not in optional:
            has = short(", ".join(there)) or "none"
            raise UserError(f"{where}: has no array called {' or '.join(names)}, but {has}")
    return sources


def real(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Return the array, unchanged, if all its values are finite real numbers.

    where: the array's name in errors.

    Raises:
        UserError: the array has another type, or holds NaN or infinity, whose index is given.
    """
    if array.dtype.kind not in "buif":
        raise UserError(f"{where}: holds {short(array.dtype)}, not real numbers; save float32 or float64")
    if not (finite := np.isfinite(array)).all():
        place = np.argwhere(~finite)[0].tolist()
        raise UserError(f"{where}: holds NaN or infinity at {place}; leave such samples out, or fill them in")
    return array


def single(array: NDArray[Any], where: str) -> NDArray[np.float32]:
    """The array as float32.

    Raises:
        UserError: as for `real`, or a number is too large for float32.
    """
    with np.errstate(over="ignore"):
        return real(real(array, where).astype(np.float32), f"{where} in single precision")


def class_names(array: NDArray[Any], where: str, count: int, each: str) -> NDArray[Any]:
    """A whole number or a text for each of `count` samples; texts that look alike are one.

    where: the array's name in errors. each: what errors call a sample, e.g. 'image'.

    Raises:
        UserError: the shape is not (count,), or a value is neither a whole number nor text, or is empty.
    """
    if array.shape != (count,):
        raise UserError(f"{where}: has shape {array.shape}, not one value for each of {count:,} {each}s")
    if array.dtype.kind == "f" and (array == np.rint(array)).all() and (np.abs(array) < 2**53).all():
        return array.astype(np.int64)
    if array.dtype.kind in "bui":
        return array
    if array.dtype.kind not in "US":
        raise UserError(f"{where}: holds {short(array.dtype)}; save whole numbers or text")
    with damaged(f"{where}: cannot be read as text", "save text with dtype=str"):
        different, numbers = np.unique(array, return_inverse=True)
        names = np.array([name_of(value) for value in different.tolist()])[numbers]
    if (names == "").any():
        raise UserError(f"{where}: row {int((names == '').argmax())} is empty; write a name")
    return names


def name_of(text: str | bytes) -> str:
    """The form that texts have in common if white space and forms of Unicode alone differ; a UnicodeError if it is no text."""
    return " ".join(normalize("NFKC", text.decode() if isinstance(text, bytes) else text).split())


def coded(values: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Codes 0..k-1 (n,) for the k distinct values, and these values as text in sorted order."""
    different, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, different.tolist()))


def classes_of(
    array: NDArray[Any], where: str, count: int, each: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels 0..k-1 (count,) of the samples, and the names of the k classes in sorted order.

    Raises:
        UserError: as for `class_names`, or there are fewer than two classes.
    """
    labels, classes = coded(class_names(array, where, count, each))
    if len(classes) < 2:
        raise UserError(
            f"{where}: has {len(classes)} class ({short(', '.join(classes))}), and needs 2 or more"
        )
    return labels, classes


def digest(arrays: Iterable[NDArray[Any]], head: str = "") -> str:
    """SHA-256 of `head` and of the arrays' types, shapes and values, in the order given."""
    total = hashlib.sha256(head.encode())
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
