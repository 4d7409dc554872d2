"""Reads a user's own labelled samples from an .npz file or from .npy files, and splits them as the settings say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.problems import arrays, splits
from ketscale.problems.labels import classes_of, coded, named
from ketscale.problems.splits import NO_MARKS, Marks, Parts

# How an array is called that says which samples belong together, in any case.
_GROUPS = re.compile(
    r"(groups?|subj|subjects?|participants?|patients?|pids?|persons?|people|users?|speakers?|animals?|individuals?|sessions?"
    r"|recordings?|runs?)([_-]?(ids?|idx|index|n[ro]|numbers?|names?|codes?))?",
    re.IGNORECASE,
)


class Source(NamedTuple):
    """An array, and its name in errors."""

    values: NDArray[Any]
    where: str


class Divided(NamedTuple):
    """What else is known of samples, and their split.

    labels: int64 (n,), indices into `classes`, which are their names. groups: int64 (n,), if there are any. marks: what
    samples of one group have in common where the split is given.
    """

    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: NDArray[np.int64] | None
    parts: Parts
    marks: Marks


@dataclass(frozen=True)
class OwnSamples:
    """The arrays of a user, by what they are: the samples, `labels`, and `groups` and `split` if the split needs them.

    split: the setting. each: what errors call a sample, e.g. 'trial'.
    """

    arrays: Mapping[str, Source]
    split: str
    each: str

    @classmethod
    def read(
        cls, files: Mapping[str, Path], wanted: Mapping[str, Sequence[str]], split: str, each: str
    ) -> OwnSamples:
        """Read an .npz file, which is called `file`, or .npy files, by what they have.

        wanted: the names that each array may have in an .npz file. With split: groups or given it must have the array
            `groups` or `split` too. Otherwise samples are drawn one by one, and no array may be there that says which of
            them belong together.

        Raises:
            UserError: as for `arrays.read_npy` and `arrays.read_npz`, or the file has an array that the split goes against.
        """
        if "file" not in files:
            read = {name: Source(arrays.read_npy(file), str(file)) for name, file in files.items()}
            return cls(read, split, each)
        file = files["file"]
        wanted = {**wanted, "groups": ("groups",), "split": ("split",)}
        optional = {"groups", "split"} - {"split" if split == "given" else split}
        found = arrays.read_npz(file, wanted, optional, lambda members: _check_drawn(members, split, file))
        return cls({name: Source(values, f"{file}: {name}") for name, values in found.items()}, split, each)

    def divided(
        self, count: int, shares: Mapping[str, float], seed: int, equal: Callable[[], NDArray[np.int64]]
    ) -> Divided:
        """The labels, groups and split of `count` samples.

        shares: of validation and test, where they are drawn, with `seed`. equal: gives the `first_equal` of the samples.

        Raises:
            UserError: an array has another shape or type, there are too few samples or groups, or a part has none.
        """
        labels, classes = classes_of(*self.arrays["labels"], count, self.each)
        groups, marks = None, NO_MARKS
        if "groups" in self.arrays:
            groups, _ = coded(named(*self.arrays["groups"], count, self.each))
        if self.split == "given":
            parts = splits.as_given(*self.arrays["split"], labels, classes)
            if groups is not None:
                # No mark of another kind is below 0.
                marks = splits.marked(-1 - groups)
        elif self.split == "groups":
            assert groups is not None
            parts = splits.by_group(groups, seed=seed, what="groups", **shares)
            splits.check_trained(parts, labels, classes, "choose another split_seed, or add groups")
        else:
            parts = splits.by_shares(labels, classes, shares, seed, equal())
        return Divided(labels, classes, groups, parts, marks)


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
