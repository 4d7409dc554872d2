"""Labels and groups of samples: numbers or text of a user, each of which must be one name, and their codes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short

# A number in plain notation; 1e5 may be a code.
_NUMBER = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)")


def named(array: NDArray[Any], where: str, count: int, each: str) -> NDArray[Any]:
    """Return the array if it has an integer or a string for each of `count` samples.

    Bytes are decoded to text, and floats that are whole numbers become integers.

    where: the array's name in errors. each: what errors call a sample, e.g. 'image'.

    Raises:
        UserError: the shape is not (count,); a value is neither a whole number nor text, or is empty; or two texts look
            like one written in two ways. The error gives the row, counted from 0.
    """
    if array.shape != (count,):
        raise UserError(
            f"{where}: has shape {array.shape}, but there are {count:,} {each}s; give one value each"
        )
    if array.dtype.kind == "f":
        return _whole(array, where)
    if array.dtype.kind not in "buiUS":
        raise UserError(f"{where}: holds {short(array.dtype)}; save whole numbers or text")
    if array.dtype.kind in "bui":
        return array
    first, numbers = np.unique(array, return_index=True, return_inverse=True)[1:]
    with damaged(f"{where}: cannot be read as text", "save text with dtype=str"):
        texts = {int(row): _text(array[row].item(), int(row), where) for row in sorted(first)}
    check_apart({f"row {row}": text for row, text in texts.items()}, where)
    return np.array([texts[row] for row in first.tolist()])[numbers]


def _whole(array: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Whole numbers that were saved as floats. From some size on, different ones may have become the same float."""
    limit = 2.0 ** min(np.finfo(array.dtype).nmant + 1, 62)
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((array == np.floor(array)) & (np.abs(array) < limit)))
    if len(wrong):
        value = array[wrong[0]].item()
        why = f"; {value:g} in row {wrong[0]} is no whole number"
        if np.isfinite(value) and value == math.floor(value):
            why = f"; in row {wrong[0]}, {value:g} is so large that {array.dtype} rounds it: save it as an integer"
        raise UserError(f"{where}: holds {short(array.dtype)}; save whole numbers or text{why}")
    return array.astype(np.int64)


def _text(value: Any, row: int, where: str) -> str:
    """A value of an array of text, or of bytes in UTF-8."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: row {row} is {short(repr(value))}, whose byte 0x{value[error.start]:02x} at {error.start} is not "
            "UTF-8; save text with dtype=str"
        ) from None


def check_apart(texts: Mapping[str, str], where: str) -> None:
    """Check that different texts are different names, so that no name is counted as two.

    Case counts. Forms of Unicode, white space, invisible characters, and how a number is written do not.

    texts: by the place that errors name. where: what errors call all of them.

    Raises:
        UserError: a text is empty, or no Unicode, or two look like one name written in two ways.
    """
    seen: dict[str, str] = {}
    for place, text in texts.items():
        if any("\ud800" <= mark <= "\udfff" for mark in text):
            # Python's sign for a byte that is not UTF-8, or half of a character.
            raise UserError(
                f"{where}: {place} is {short(ascii(text))}, which is not Unicode; write it in UTF-8"
            )
        name = _shown(text)
        if not name:
            raise UserError(f"{where}: {place} is empty ({short(ascii(text))}); write a name")
        other = seen.setdefault(name, place)
        if texts[other] != text:
            raise UserError(
                f"{where}: {short(ascii(texts[other]))} ({other}) and {short(ascii(text))} ({place}) look like one name "
                "written in two ways; write it in one way, or choose names that differ"
            )


def _shown(text: str) -> str:
    """The form that two texts have in common if they look the same."""
    plain = unicodedata.normalize("NFKC", text)
    visible = "".join(
        mark for mark in plain if mark.isspace() or unicodedata.category(mark) not in ("Cc", "Cf")
    )
    name = " ".join(visible.split())
    number = _NUMBER.fullmatch(name)
    if not number:
        return name
    value = f"{number[2].lstrip('0') or '0'}.{number[3].rstrip('0')}".rstrip(".")
    return value if number[1] != "-" or value == "0" else f"-{value}"


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
