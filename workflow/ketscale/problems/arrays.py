"""Reads arrays from .npz and .npy files and checks them before use. Pickles are never loaded."""

from __future__ import annotations

import hashlib
import math
import re
import sys
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short
from ketscale.files import opened

_ZIP, _NPY = b"PK", b"\x93NUMPY"
# The versions of the format that NumPy writes for numbers and text.
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


# How an array is called that says which samples belong together, in any case.
_GROUPS = re.compile(
    r"(groups?|subj|subjects?|participants?|patients?|pids?|persons?|people|users?|speakers?|animals?|individuals?|sessions?"
    r"|recordings?|runs?)([_-]?(ids?|idx|index|n[ro]|numbers?|names?|codes?))?",
    re.IGNORECASE,
)
# In plain notation, since 1e5 may be a code.
_NUMBER = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)")


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
    path: Path, wanted: Mapping[str, Sequence[str]], split: str | None = None
) -> dict[str, NDArray[Any]]:
    """The wanted arrays of an .npz file, under the keys of `wanted`; of a data set also `groups` and `split`, if there.

    wanted: for each array the names that it may have in the file, e.g. {'labels': ('labels', 'y')}; exactly one of
        them must be there.
    split: the setting of a data set. With `groups` or `given` the array `groups` or `split` must be there. Otherwise
        samples are drawn one by one, and no array may be there that says which of them belong together.

    Raises:
        UserError: the file is damaged, has an array that the split goes against, or an array is missing, is there twice,
            or holds Python objects.
    """
    found = {}
    needed = set(wanted)
    if split is not None:
        needed |= {"groups"} if split == "groups" else {"split"} if split == "given" else set()
        wanted = {**wanted, "groups": ("groups",), "split": ("split",)}
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
            if split is not None:
                _check_drawn(members, split, path)
            for what, names in wanted.items():
                there = sorted(name for name in members if name in names)
                if len(there) > 1:
                    raise UserError(f"{path}: has both {there[0]} and {there[1]}; keep one")
                if not there and what in needed:
                    has = short(", ".join(members)) or "none"
                    raise UserError(
                        f"{path}: has no array called {' or '.join(names)} (it has {has}); save it under that name"
                    )
                for name in there:
                    where, member = f"{path}: {name}", f"{name}.npy"
                    with _readable(where), archive.open(member) as file:
                        found[what] = _array(file, archive.getinfo(member).file_size, where)
    return found


def _check_drawn(members: Iterable[str], split: str, file: Path) -> None:
    """Raise UserError if a file says which samples go together, or in which part, but the setting `split` does not."""
    for name in members:
        if name.lower() in ("split", "splits") and split != "given":
            raise UserError(
                f"{file}: has an array {name}, but the setting split: {split} draws it; call it split and set split: "
                "given, or save the file without it"
            )
        if _GROUPS.fullmatch(name) and split not in ("groups", "given"):
            raise UserError(
                f"{file}: has an array {name}, but split: {split} draws samples one by one, so that those of one of "
                f"its values would be in training and in the test; {_remedy(name, split)}, or save the file without it"
            )


def _remedy(name: str, split: str) -> str:
    if split == "samples":  # of images and features, which have no split by groups
        return "put an array split into the file and set split: given"
    return "set split: groups" if name == "groups" else "call it groups and set split: groups"


def _array(file: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """The array of an .npy stream of `size` bytes, which must be what its header promises before memory is taken."""
    shape, _, kind = _HEADERS[np.lib.format.read_magic(file)](file)
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
    """Return the array, unchanged, if all its values are finite real numbers.

    where: the array's name in errors.

    Raises:
        UserError: the array has another type, or holds NaN or infinity; the error gives the index.
    """
    if array.dtype.kind not in "buif":
        raise UserError(
            f"{where}: holds {short(array.dtype)}, not real numbers; save it as float32 or float64"
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


def named(array: NDArray[Any], count: int, where: str, each: str) -> NDArray[Any]:
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
    """What two texts that look the same have in common."""
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
    array: NDArray[Any], count: int, where: str, each: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels 0..k-1 (count,) of the samples, and the names of the k classes in sorted order.

    Raises:
        UserError: as for `named`, or there are fewer than two classes.
    """
    labels, classes = coded(named(array, count, where, each))
    if len(classes) < 2:
        raise UserError(
            f"{where}: has {len(classes)} class ({short(', '.join(classes))}); at least 2 are needed"
        )
    return labels, classes


def digest(arrays: Iterable[NDArray[Any]], head: str = "") -> str:
    """SHA-256 of `head` and of the arrays' types, shapes and values, in the order given."""
    total = hashlib.sha256(head.encode())
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
