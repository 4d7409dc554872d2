"""Labels are names: what looks alike is one, and what is no name is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.errors import UserError
from ketscale.problems.arrays import classes_of
from tests.own_files import SIGNALS, loaded, npz


def classes(labels: Any) -> tuple[list[int], tuple[str, ...]]:
    array = np.asarray(labels)
    numbers, names = classes_of(array, "labels", len(array), "sample")
    return numbers.tolist(), names


@pytest.mark.parametrize(
    ("labels", "expected", "names"),
    [
        (np.array([1.0, -0.0, 1.0]), [1, 0, 1], ("0", "1")),
        (np.array([True, False, True]), [1, 0, 1], ("False", "True")),
        # Letters of both cases are classes of data sets such as EMNIST.
        (["a", "A", "b"], [1, 0, 2], ("A", "a", "b")),
        (["1e1", "10", "1e1"], [1, 0, 1], ("10", "1e1")),
        (["left fist", "right fist", "left-fist"], [0, 2, 1], ("left fist", "left-fist", "right fist")),
        (["b", "a", "a ", "\ta"], [1, 0, 0, 0], ("a", "b")),
        (["left fist", "left  fist", "left\xa0fist", "x"], [0, 0, 0, 1], ("left fist", "x")),
    ],
)  # fmt: skip
def test_labels_keep_their_names(labels: Any, expected: list[int], names: tuple[str, ...] | None) -> None:
    numbers, result = classes(labels)
    assert numbers == expected and (names is None or result == names)


@pytest.mark.parametrize("labels", [[0, 1, 1.5], [0, np.nan, 1], ["cat", ""], ["cat", " "], ["a", "a "]])
def test_labels_that_are_no_names_are_refused(labels: Any) -> None:
    with pytest.raises(UserError, match=r"^labels: "):
        classes(labels)


def test_groups_that_look_alike_are_one(tmp_path: Path) -> None:
    groups = np.repeat(["anna", "anna ", "ben", "cleo", "dan"], 8)
    block = {"kind": "series", "split": "groups"}
    parts = loaded({**block, "file": npz(tmp_path, x=SIGNALS, y=np.arange(40) % 2, groups=groups)}).splits
    assert any({*range(16)} <= {*rows.tolist()} for rows in parts.values())
