"""Labels and groups of samples, numbers or text of a user, as names and their codes."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short


def named(array: NDArray[Any], where: str, count: int, each: str) -> NDArray[Any]:
    """A whole number or a text for each of `count` samples; texts that look alike are one.

    where: the array's name in errors. each: what errors call a sample, e.g. 'image'.

    Raises:
        UserError: the shape is not (count,), or a value is neither a whole number nor text, or is empty.
    """
    if array.shape != (count,):
        raise UserError(
            f"{where}: has shape {array.shape}, but there are {count:,} {each}s; give one value each"
        )
    if array.dtype.kind == "f":
        # From some size on, different whole numbers may have become the same float.
        limit = 2.0 ** min(np.finfo(array.dtype).nmant + 1, 62)
        if (array == np.rint(array)).all() and (np.abs(array) < limit).all():
            return array.astype(np.int64)
    if array.dtype.kind not in "buiUS":
        raise UserError(f"{where}: holds {short(array.dtype)}; save whole numbers or text")
    if array.dtype.kind in "bui":
        return array
    with damaged(f"{where}: cannot be read as text", "save text with dtype=str"):
        different, numbers = np.unique(array, return_inverse=True)
        names = np.array([name_of(value) for value in different.tolist()])[numbers]
    if (names == "").any():
        raise UserError(f"{where}: row {int((names == '').argmax())} is empty; write a name")
    return names


def name_of(text: str | bytes) -> str:
    """The form that texts have in common if they look the same: case counts, white space and forms of Unicode do not.

    Raises:
        UnicodeError: it is no text in UTF-8.
    """
    plain = unicodedata.normalize("NFKC", text.decode() if isinstance(text, bytes) else text)
    plain.encode()
    visible = (mark for mark in plain if mark.isspace() or unicodedata.category(mark) not in ("Cc", "Cf"))
    return " ".join("".join(visible).split())


def coded(values: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Codes 0..k-1 (n,) for the k distinct values, and these values as text in sorted order."""
    different, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, different.tolist()))


def classes_of(
    array: NDArray[Any], where: str, count: int, each: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels 0..k-1 (count,) of the samples, and the names of the k classes in sorted order.

    Raises:
        UserError: as for `named`, or there are fewer than two classes.
    """
    labels, classes = coded(named(array, where, count, each))
    if len(classes) < 2:
        raise UserError(
            f"{where}: has {len(classes)} class ({short(', '.join(classes))}); at least 2 are needed"
        )
    return labels, classes
