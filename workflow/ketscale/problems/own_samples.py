"""Reads a user's own samples from an .npz file, and splits them as the settings say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.config import REGRESSION, Draft
from ketscale.errors import UserError
from ketscale.problems import arrays, splits
from ketscale.problems.arrays import Source
from ketscale.problems.labels import classes_of, coded, named
from ketscale.problems.samples import Samples, first_equal
from ketscale.problems.splits import NO_MARKS

if TYPE_CHECKING:
    from ketscale.problems.own_data import OwnArrays, OwnSamples

# Names of arrays that say in which part a sample is; case does not matter.
_PARTS = re.compile(
    r"splits?|(train(ing)?|val(id)?|validation|test)([_-]?(idx|index|indices|ids?|masks?|splits?|sets?))?",
    re.IGNORECASE,
)
# Names of arrays that say which samples belong together; case does not matter.
_GROUPS = re.compile(
    r"(groups?|subj|subjects?|participants?|patients?|pids?|persons?|people|users?|speakers?|animals?|individuals?|sessions?"
    r"|recordings?|runs?)([_-]?(ids?|idx|index|n[ro]|numbers?|names?|codes?))?",
    re.IGNORECASE,
)


# Whole numbers of so many values are names of classes for a first config.
MOST_CLASSES = 20


def read(workload: OwnArrays, wanted: Mapping[str, Sequence[str]]) -> dict[str, Source]:
    """The arrays of a workload: those that are wanted, and `groups` and `split` if the split needs them.

    wanted: for each array the names that it may have. With split: groups or given there must be the array `groups` or
        `split` too. Otherwise samples are drawn one by one, and no array may say which of them belong together.

    Raises:
        UserError: the file is damaged, an array is missing, or the file has an array that the split goes against.
    """
    where, split = str(workload.file), workload.split
    there = arrays.read(workload.path)
    _check_drawn(there, split, where)
    wanted = {**wanted, "groups": ("groups",), "split": ("split",)}
    return arrays.chosen(there, wanted, {"groups", "split"} - {"split" if split == "given" else split}, where)


def draft(path: Path, samples: Sequence[str], dimensions: Collection[int], regression: bool) -> Draft | None:
    """The settings of a workload of an .npz file; None if no array of one of these names has so many dimensions.

    regression: whether this kind of workload can be one.

    Raises:
        UserError: the file is damaged, or nothing in it says what is to be predicted.
    """
    there = arrays.read(path)
    found = [there[name].shape for name in samples if name in there]
    if len(found) != 1 or len(found[0]) not in dimensions:
        return None
    settings: dict[str, Any] = {"file": str(path)}
    targets, where = arrays.chosen(there, {"targets": ("targets", "labels", "y")}, (), str(path))["targets"]
    if targets.ndim == 2 and targets.shape[1] > 1 and targets.dtype.kind in "buif" and _one_hot(targets):
        raise UserError(
            f"{where}: has one 1 in each row, as one-hot classes do; save their numbers, {where.rpartition(' ')[2]}.argmax(1)"
        )
    if regression and is_regression(targets):
        settings["task"] = REGRESSION
    if "split" in there:
        settings["split"] = "given"
    elif "groups" in there:
        settings["split"] = "groups"
    return Draft(settings, found[0][0], "split" not in there or has_validation(there["split"]))


def is_regression(values: NDArray[Any]) -> bool:
    """Whether values look like numbers that are to be predicted, not like the names of classes.

    They do if there are several columns, fractions, or more different ones than `MOST_CLASSES` and a tenth of all.
    """
    if values.ndim > 1 and values.shape[1:] != (1,):
        return True
    if values.ndim == 0 or values.dtype.kind not in "iuf":
        return False
    fractions = values.dtype.kind == "f" and bool((values != np.floor(values)).any())
    return fractions or len(np.unique(values)) > max(MOST_CLASSES, len(values) // 10)


def _one_hot(values: NDArray[Any]) -> bool:
    return bool(np.isin(values, (0, 1)).all() and (values.sum(1) == 1).all())


def has_validation(parts: Any) -> bool:
    """Whether an array of the parts' names puts a sample into validation."""
    return bool(np.isin(parts, ("val", "validation")).any())


def divided(
    workload: OwnSamples,
    there: Mapping[str, Source],
    values: NDArray[Any],
    each: str,
    peak: int | None = None,
) -> Samples:
    """The samples with these values (n, ...), with targets, groups and split from the arrays that `read` gives.

    each: what errors call a sample, e.g. 'trial'. peak: of pixels, see `Samples`.

    Raises:
        UserError: an array has another shape or type, there are too few samples or groups, or a part has none.
    """
    targets: NDArray[Any]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    count = len(values)
    if workload.task == REGRESSION:
        targets, names = _numbers(*there["labels"], count, each)
        # All are of one class, so to say.
        labels, classes = np.zeros(count, np.int64), ("",)
    else:
        labels, classes = classes_of(*there["labels"], count, each)
        targets, names = labels, classes
    groups: dict[str, NDArray[np.int64]] = {}
    marks, shares, seed = NO_MARKS, workload.shares, workload.split_seed or 0
    folds = getattr(workload, "folds", None)
    if "groups" in there:
        groups["groups"], _ = coded(named(*there["groups"], count, each))
    if workload.split == "given":
        parts = splits.as_given(*there["split"], labels, classes)
        if groups:
            # No mark of another kind is below 0.
            marks = splits.marked(-1 - groups["groups"])
    elif workload.split == "groups":
        parts = splits.by_group(groups["groups"], seed=seed, what="groups", folds=folds, **shares)
        splits.check_trained(parts, labels, classes, "choose another split_seed, or add groups")
    elif workload.split == "time":
        parts = splits.by_time(there["time"].values, **shares)
        splits.check_trained(parts, labels, classes, "choose another split, or add samples")
    else:
        parts = splits.by_shares(labels, classes, shares, seed, first_equal(values, peak), folds)
    return Samples(
        values=values, targets=targets, names=names, folds=[parts], marks=marks, groups=groups, peak=peak
    )


def _numbers(
    values: NDArray[Any], where: str, count: int, each: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Targets of a regression, (count, columns), and the columns' names."""
    columns = values[:, None] if values.ndim == 1 else values
    if columns.ndim != 2 or len(columns) != count or not columns.size:
        raise UserError(
            f"{where}: has shape {values.shape}, but there are {count:,} {each}s; give one number each, or one row of numbers"
        )
    one = columns.shape[1] == 1
    names = ("target",) if one else tuple(f"target{i}" for i in range(columns.shape[1]))
    arrays.real(values, where)
    return columns.astype(np.float64), names


def names_parts(name: str) -> bool:
    """Whether a column of this name says in which part a sample is."""
    return name.lower() in ("split", "splits")


def are_parts(values: Iterable[Any]) -> bool:
    """Whether these are the names of parts and nothing else, in any case."""
    found = {str(value).lower() for value in {*values}}
    return len(found) > 1 and found <= {*splits.SPLITS, "val"}


def names_groups(name: str) -> bool:
    """Whether an array or a column of this name says which samples belong together."""
    return _GROUPS.fullmatch(name) is not None


def _check_drawn(members: Iterable[str], split: str, file: Path | str) -> None:
    """Raise UserError if a file says which samples go together, or in which part, but the setting `split` does not."""
    for name in members:
        if _PARTS.fullmatch(name) and split != "given":
            raise UserError(
                f"{file}: has an array {name}, but the setting split: {split} draws the parts; put an array split into the file "
                "(train, validation or test for each sample) and set split: given, or save the file without it"
            )
        if names_groups(name) and split not in ("groups", "given"):
            remedy = "put an array split into the file and set split: given"
            if split != "samples":  # of images and features, which have no split by groups
                remedy = "call it groups and set split: groups"
            raise UserError(
                f"{file}: has an array {name}, but split: {split} draws samples one by one, so that those of one of its values "
                f"would be in training and in the test; {remedy}, or save the file without it"
            )
