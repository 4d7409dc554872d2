"""Equal samples are in one part of a split that is drawn; elsewhere the record says how many two parts share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from PIL import Image

from ketscale.config import Split
from ketscale.errors import UserError
from ketscale.problems import splits
from ketscale.problems.sentences.sentences import prepare, read_prepared
from ketscale.problems.sentences.specification import SentencesWorkload
from ketscale.problems.splits import SPLITS
from tests.own_files import ANIMALS, GREY, NETWORK, SIGNALS, VECTORS, config, loaded, npz, pictures

# The last twenty samples are copies of the first ones, half of them with another label.
COPY = np.append(np.arange(20), np.arange(20))


def colours(path: Path) -> str:
    folder = pictures(path / "folder")
    for number in range(5):
        # The same picture in a file with other bytes.
        Image.open(folder / "day" / f"{number}.png").save(folder / "day" / f"{number}.bmp")
    return str(folder)


DRAWN: dict[str, Callable[[Path], dict[str, Any]]] = {
    "images": lambda p: {"kind": "arrays", "file": npz(p, x=GREY[COPY], y=ANIMALS), **NETWORK},
    "features": lambda p: {"kind": "rows", "file": npz(p, x=VECTORS[COPY], y=ANIMALS)},
    "image-folder": lambda p: {"kind": "image-folder", "folder": colours(p), **NETWORK},
    "series": lambda p: {"kind": "series", "split": "trials", "file": npz(p, x=SIGNALS[COPY], y=ANIMALS)},
    # Trials that only their unit tells apart are equal once they are standardised.
    "scaled": lambda p: {
        "kind": "series", "split": "trials", "standardise": True,
        "file": npz(p, x=SIGNALS[COPY] * np.repeat([1, 4], 20)[:, None, None], y=ANIMALS),
    },
}  # fmt: skip


def rows(block: dict[str, Any]) -> tuple[np.ndarray, splits.Parts]:
    """The samples of a workload, and their parts."""
    data = loaded(block)
    return data.values, data.splits


@pytest.mark.parametrize("kind", DRAWN)
def test_equal_samples_are_in_one_part(kind: str, tmp_path: Path) -> None:
    block = DRAWN[kind](tmp_path)
    for seed in range(2):
        samples, parts = rows({**block, "split_seed": seed})
        assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(samples)))
        values = [{sample.tobytes() for sample in samples[parts[name]]} for name in SPLITS]
        assert not values[0] & values[1] and not values[0] & values[2] and not values[1] & values[2]
        assert all(values)


def test_without_copies_a_split_is_what_it_was(tmp_path: Path) -> None:
    _, parts = rows({"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS)})
    assert parts["validation"].tolist() == [9, 16, 18, 19, 22, 24, 37]
    assert parts["test"].tolist() == [5, 8, 21, 23, 26, 28, 30]


def of_record(block: dict[str, Any], manifest: Path) -> Split:
    """The split as the record of the one run has it."""
    result = config(block)
    settings = result.settings(result.runs[0])
    settings.family.prepare(settings.workload, manifest, None)
    return settings.family.read(settings, manifest).split


GIVEN = np.repeat(["train", "validation", "test"], [20, 12, 8])
PEOPLE = np.repeat(["anna", "ben", "cleo", "dan"], 10)


@pytest.mark.parametrize(
    ("block", "split"),
    [
        (DRAWN["features"], Split("labels", shared=0)),
        (DRAWN["series"], Split("trials", shared=0)),
        (
            lambda p: {"kind": "rows", "split": "given", "file": npz(p, x=VECTORS[COPY], y=ANIMALS, split=GIVEN)},
            Split("given", shared=20),
        ),
        # A group is not torn apart, so copies in other groups are named.
        (
            lambda p: {
                "kind": "series", "split": "groups", "split_seed": 1,
                "file": npz(p, x=SIGNALS[COPY], y=np.tile([1, 2], 20), groups=PEOPLE),
            },
            Split("groups", shared=20),
        ),
    ],
)  # fmt: skip
def test_the_record_says_how_many_samples_two_parts_share(
    block: Callable[[Path], dict[str, Any]], split: Split, tmp_path: Path
) -> None:
    assert of_record(block(tmp_path), tmp_path / "features.json") == split


def test_copies_do_not_make_up_for_samples(tmp_path: Path) -> None:
    block = {"kind": "rows", "file": npz(tmp_path, x=np.ones((40, 3)), y=ANIMALS)}
    with pytest.raises(
        UserError, match="class 'cat' has 1 samples, if equal ones count once: too few to train on"
    ):
        loaded(block)


def test_equal_sentences_are_in_one_part(tmp_path: Path) -> None:
    lines = "the bird sings\nThe  BIRD sings\nold ships sail\nrain falls\nRain falls \ndogs run fast"
    (tmp_path / "text.txt").write_text(lines)
    settings = {"seed": 1, "held_out": 1, "file": str(tmp_path / "text.txt")}
    for seed in range(5):
        prepare(SentencesWorkload(**settings, split_seed=seed), tmp_path / "features.json")
        result = read_prepared(ANY, tmp_path / "features.json")
        part = {row: name for name in SPLITS for row in result.content.splits[name].tolist()}
        assert sorted(part) == list(range(6)) and result.split.shared == 0
        assert part[0] == part[1] and part[3] == part[4]
    with pytest.raises(UserError, match="held_out: 2 of 4 different sentences"):
        prepare(SentencesWorkload(**{**settings, "held_out": 2}, split_seed=0), tmp_path / "features.json")


def test_zero_has_no_sign_and_digits_have_no_copies() -> None:
    assert splits.first_equal(np.array([[0.0], [1.0], [-0.0], [1.0]])).tolist() == [0, 1, 0, 1]
    digits = loaded({"kind": "digits", **NETWORK, "split_seed": 0})
    assert digits.shared() == [0] and len(np.unique(splits.first_equal(digits.values))) == 1797
