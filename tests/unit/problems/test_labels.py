"""No two labels are merged and none is split without a word: each is a name of its own, or an error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.errors import UserError
from ketscale.problems.labels import classes_of
from tests.own_files import GREY, NETWORK, SIGNALS, idx, loaded, npz, pictures


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


NOT_SURE = [
    [b"cat", b"caf\xe9"], [0, 1, 1.5], [0, np.nan, 1], [0, 1, -np.inf], [0, 2.0**53, 1], np.array([0, -(2.0**24)], np.float32),
    np.array([0, 2048], np.float16), [0j, 1], np.array(["2020-01-01", "2021-01-01"], "M8[D]"), ["1", "1.0", "2"], ["2", "01", "1"],
    ["1", "+1"], ["0", "-0.0"], ["a", "a "], ["a", "\ta"], ["left fist", "left  fist"], ["left fist", "left\xa0fist"],
    ["caf\xe9", "cafe\u0301"], ["\u03bcV", "\xb5V"], ["cat", "c\xadat"], ["cat", "\ufeffcat"], ["cat", "cat\u200b"],
    [b"a", b"a "], ["cat", ""], ["cat", " "], ["cat", "\udce9"],
]  # fmt: skip


@pytest.mark.parametrize("labels", NOT_SURE)
def test_labels_that_are_not_sure_are_refused(labels: Any) -> None:
    with pytest.raises(UserError, match=r"^labels: .*row|^labels: holds"):
        classes(labels)


def test_the_file_is_named_whatever_its_kind(tmp_path: Path) -> None:
    latin = np.array([b"caf\xe9", b"caf\xe8"] * 20)
    good = np.arange(40) % 2
    for name, block, data in (
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


@pytest.mark.parametrize("other", ["day ", b"d\xe9"])
def test_folders_whose_names_are_not_sure_are_refused(other: str | bytes, tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    target = bytes(folder) + b"/" + (other if isinstance(other, bytes) else other.encode())
    os.rename(bytes(folder / "night"), target)
    with pytest.raises(UserError, match=r"(look like one name|is not Unicode)"):
        loaded({"kind": "image-folder", "folder": str(folder), **NETWORK})
