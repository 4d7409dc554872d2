"""No two labels are merged and none is split without a word: each is a name of its own, or an error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.errors import UserError
from ketscale.problems.labels import classes_of
from tests.own_files import GREY, NETWORK, SIGNALS, VECTORS, idx, loaded, npy, npz, pictures


def classes(labels: Any) -> tuple[list[int], tuple[str, ...]]:
    array = np.asarray(labels)
    numbers, names = classes_of(array, "labels", len(array), "sample")
    return numbers.tolist(), names


@pytest.mark.parametrize(
    ("labels", "expected", "names"),
    [
        (np.array([1.0, 0.0, 1.0]), [1, 0, 1], ("0", "1")),
        (np.array([-0.0, 0.0, 5.0]), [0, 0, 1], ("0", "5")),
        (np.array([10, 9, -2], np.float16), [2, 1, 0], ("-2", "9", "10")),
        (np.array([2**53 - 1, 1.0, 2**53 - 2]), [2, 0, 1], ("1", "9007199254740990", "9007199254740991")),
        (np.array([2**53, 2**53 + 1, 2**63], np.uint64), [0, 1, 2], None),
        (np.array([True, False, True]), [1, 0, 1], ("False", "True")),
        (np.array(["é".encode(), b"e", b"\xc3\xa8"]), [2, 0, 1], ("e", "è", "é")),
        # Letters of both cases are classes of data sets such as EMNIST.
        (["a", "A", "b"], [1, 0, 2], ("A", "a", "b")),
        (["1e1", "10", "1e1"], [1, 0, 1], ("10", "1e1")),
        (["left fist", "right fist", "left-fist"], [0, 2, 1], ("left fist", "left-fist", "right fist")),
        (["1" * 40, "1" * 39 + "2", "x"], [0, 1, 2], None),
        (["-0.5", "0.5", "-5"], [0, 2, 1], ("-0.5", "-5", "0.5")),
    ],
)  # fmt: skip
def test_labels_keep_their_names(labels: Any, expected: list[int], names: tuple[str, ...] | None) -> None:
    numbers, found = classes(labels)
    assert numbers == expected
    assert names is None or found == names
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([b"cat", b"caf\xe9", b"caf\xe8"]), r"labels: row 1 is b'caf\\xe9', whose byte 0xe9 at 3 is not UTF-8"),
        (np.array([b"cat", b"dog", b"\xff"]), "row 2 .* byte 0xff at 0"),
        (np.array([0, 1, 1.5]), "holds float64; save whole numbers or text; 1.5 in row 2 is no whole number"),
        (np.array([0, np.nan, 1]), "nan in row 1 is no whole number"),
        (np.array([0, 1, -np.inf]), "-inf in row 2"),
        (np.array([0, 2.0**53, 1]), "so large that float64 rounds it: save it as an integer"),
        (np.array([0, 2.0**53 + 1]), "in row 1"),
        (np.array([0, -(2.0**24)], np.float32), "so large that float32 rounds it"),
        (np.array([0, 2048], np.float16), "so large that float16 rounds it"),
        (np.array([0j, 1]), "holds complex128"),
        (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), "holds datetime64"),
        (["1", "1.0", "2"], r"'1' \(row 0\) and '1.0' \(row 1\) look like one name written in two ways"),
        (["2", "01", "1"], "row 1.*row 2"),
        (["1", "+1"], "look like one name"),
        (["0", "-0.0"], "look like one name"),
        (["a", "a "], "look like one name"),
        (["a", "\ta"], "look like one name"),
        (["left fist", "left  fist"], "look like one name"),
        (["left fist", "left\xa0fist"], "look like one name"),
        (["caf\xe9", "cafe\u0301"], r"'caf\\xe9' \(row 0\) and 'cafe\\u0301' \(row 1\)"),
        (["\u03bcV", "\xb5V"], "look like one name"),
        (["cat", "c\xadat"], "look like one name"),
        (["cat", "\ufeffcat"], "look like one name"),
        (["cat", "cat\u200b"], "look like one name"),
        (np.array([b"a", b"a "]), "look like one name"),
        (["cat", ""], r"row 1 is empty \(''\)"),
        (["cat", " "], r"row 1 is empty \(' '\)"),
        (["cat", "\udce9"], r"row 1 is .*udce9.* is not Unicode"),
    ],
)  # fmt: skip
def test_labels_that_are_not_sure_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        classes(labels)
    assert len(str(raised.value).splitlines()) == 1


def test_the_file_is_named_whatever_its_kind(tmp_path: Path) -> None:
    latin = np.array([b"caf\xe9", b"caf\xe8"] * 20)
    good = np.arange(40) % 2
    for name, block, data in (
        ("labels", {"kind": "arrays"}, {"x": VECTORS, "labels": latin}),
        ("labels", {"kind": "series", "split": "trials"}, {"x": SIGNALS, "labels": latin}),
        # A group that is written in two ways would be in two parts.
        ("groups", {"kind": "series", "split": "groups"}, {"x": SIGNALS, "y": good, "groups": latin}),
    ):
        with pytest.raises(UserError, match=rf"mine\.npz: {name}: row 0 is b'caf\\xe9', whose byte 0xe9"):
            loaded({**block, "file": npz(tmp_path, **data)})


def test_labels_of_idx_files_may_be_floats(tmp_path: Path) -> None:
    labels = (np.arange(40) % 2).astype(">f4")
    block = {"kind": "idx", "images": idx(tmp_path, "x", GREY), **NETWORK}
    data = loaded({**block, "labels": idx(tmp_path, "y", labels, 0x0D)})
    assert data.classes == ("0", "1") and data.labels.tolist() == [0, 1] * 20
    with pytest.raises(UserError, match=r"0\.5 in row 1 is no whole number"):
        loaded({**block, "labels": idx(tmp_path, "y", (labels / 2).astype(">f4"), 0x0D)})


@pytest.mark.parametrize("other", ["day ", "d\xaday", b"d\xe9"])
def test_folders_whose_names_are_not_sure_are_refused(other: str | bytes, tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    target = bytes(folder) + b"/" + (other if isinstance(other, bytes) else other.encode())
    os.rename(bytes(folder / "night"), target)
    with pytest.raises(UserError, match=r"(look like one name|is not Unicode)"):
        loaded({"kind": "image-folder", "folder": str(folder), **NETWORK})


@pytest.mark.parametrize("order", ["<", ">"])
def test_characters_that_do_not_exist_are_refused(order: str, tmp_path: Path) -> None:
    """A flipped bit makes them; Python cannot hold them."""
    labels = np.array(["cat", "dog"] * 20, f"{order}U3")
    file = npy(tmp_path, "y.npy", labels)
    raw = bytearray(Path(file).read_bytes())
    raw[-4 if order == ">" else -1] = 0x7F  # the highest byte of the last character
    Path(file).write_bytes(bytes(raw))
    with pytest.raises(UserError, match=r"y\.npy: has characters that do not exist"):
        loaded({"kind": "arrays", "features": npy(tmp_path, "x.npy", VECTORS), "labels": file})
