"""Reads a user's own samples from an .npz file, and splits them as the settings say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.config import REGRESSION
from ketscale.errors import UserError
from ketscale.problems import arrays, splits
from ketscale.problems.arrays import Source, class_names, classes_of, coded
from ketscale.problems.samples import Samples, first_equal
from ketscale.problems.splits import NO_MARKS

if TYPE_CHECKING:
    from ketscale.problems.own_data import OwnArrays, OwnSamples

# Names of arrays that say in which part a sample is, and of those that say which samples belong together.
_PARTS = re.compile(
    r"(?i)(train(ing)?|val(id)?|validation|test)([_-]?(idx|index|indices|ids?|masks?|splits?|sets?))?"
)
_GROUPS = re.compile(
    r"(?i)(groups?|subj|subjects?|participants?|patients?|pids?|persons?|people|users?|speakers?|animals?|individuals?"
    r"|sessions?|recordings?|runs?)([_-]?(ids?|idx|index|n[ro]|numbers?|names?|codes?))?"
)
# Whole numbers of so many values are names of classes for a first config.
MOST_CLASSES = 20


class Draft(NamedTuple):
    """What a first config says of a user's data.

    settings: of the workload. samples: their number. validation: whether some are for validation. notes: what is a feature
    and what is not, and why, a line each.
    """

    settings: Mapping[str, Any]
    samples: int
    validation: bool = True
    notes: tuple[str, ...] = ()


def read(workload: OwnArrays, names: Mapping[str, Sequence[str]]) -> dict[str, Source]:
    """The arrays of a workload: those that are wanted, and `groups` and `split` if the split needs them.

    names: for each array the names that it may have. With split: groups or given there must be the array `groups` or
        `split` too. Otherwise samples are drawn one by one, and no array may say which of them belong together.

    Raises:
        UserError: the file is damaged, an array is missing, or the file has an array that the split goes against.
    """
    where, split = str(workload.file), workload.split
    there = arrays.read(workload.path)
    for name in there:
        if split != "given" and (names_parts(name) or _PARTS.fullmatch(name)):
            raise UserError(
                f"{where}: has an array {name}, but the setting split: {split} draws the parts; put an array split into the file "
                "(train, validation or test for each sample) and set split: given, or save the file without it"
            )
        if split not in ("groups", "given") and names_groups(name):
            # Images have no split by groups.
            remedy = (
                "set split: given with an array split"
                if split == "samples"
                else "call it groups and set split: groups"
            )
            raise UserError(
                f"{where}: has an array {name}, but split: {split} draws samples one by one, so that those of one of its values "
                f"would be in training and in the test; {remedy}, or save the file without it"
            )
    names = {**names, "groups": ("groups",), "split": ("split",)}
    return arrays.select(there, names, {"groups", "split"} - {"split" if split == "given" else split}, where)


def draft(
    there: Mapping[str, NDArray[Any]], path: Path, samples: str, dimensions: Collection[int]
) -> Draft | None:
    """The settings of a workload of these arrays of an .npz file; None if no array called so, or x, has so many dimensions.

    Raises:
        UserError: nothing in it says what is to be predicted.
    """
    shapes = [there[name].shape for name in (samples, "x") if name in there]
    if len(shapes) != 1 or len(shapes[0]) not in dimensions:
        return None
    targets, where = arrays.select(there, {"targets": ("targets", "labels", "y")}, (), str(path))["targets"]
    if (
        targets.ndim == 2
        and targets.shape[1] > 1
        and np.isin(targets, (0, 1)).all()
        and (targets.sum(1) == 1).all()
    ):
        raise UserError(
            f"{where}: holds one-hot classes; save their numbers, {where.rpartition(' ')[2]}.argmax(1)"
        )
    settings = {}
    if samples == "features" and is_regression(targets):
        settings["task"] = REGRESSION
    if "split" in there or "groups" in there:
        settings["split"] = "given" if "split" in there else "groups"
    return Draft(settings, shapes[0][0], "split" not in there or has_validation(there["split"]))


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
    count = len(values)
    targets: NDArray[Any]
    classes: tuple[str, ...] = ("",)
    if workload.task == REGRESSION:
        targets, names = _numbers(*there["labels"], count, each)
        # All are of one class, so to say.
        labels = np.zeros(count, np.int64)
    else:
        labels, names = classes_of(*there["labels"], count, each)
        targets, classes = labels, names
    groups = {"groups": coded(class_names(*there["groups"], count, each))[0]} if "groups" in there else {}
    marks, shares, seed = NO_MARKS, workload.shares, workload.split_seed or 0
    folds = getattr(workload, "folds", None)
    if workload.split == "given":
        parts = splits.predefined(*there["split"], count)
        if groups:
            # No mark of another kind is below 0.
            marks = splits.marked(-1 - groups["groups"])
    elif workload.split == "groups":
        parts = splits.by_group(groups["groups"], seed=seed, what="groups", folds=folds, **shares)
    elif workload.split == "time":
        parts = splits.by_time(there["time"].values, **shares)
    else:
        parts = splits.by_shares(labels, classes, shares, seed, first_equal(values), folds)
    splits.check_trained(parts, labels, classes, "choose another split, or add samples")
    return Samples(
        values=values, targets=targets, names=names, folds=[parts], marks=marks, groups=groups, peak=peak
    )


def _numbers(
    values: NDArray[Any], where: str, count: int, each: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Targets of a regression, (count, columns), and the columns' names."""
    columns = arrays.real(values, where)[:, None] if values.ndim == 1 else arrays.real(values, where)
    if columns.ndim != 2 or len(columns) != count or not columns.size:
        raise UserError(
            f"{where}: has shape {values.shape}, not a number, or a row, for each of {count:,} {each}s"
        )
    width = columns.shape[1]
    names = ("target",) if width == 1 else tuple(f"target{i}" for i in range(width))
    return columns.astype(np.float64), names


def names_parts(name: str) -> bool:
    """Whether a column of this name says in which part a sample is."""
    return name.lower() in ("split", "splits")


def are_parts(values: Iterable[Any]) -> bool:
    """Whether these are the names of parts and nothing else, in any case."""
    names = {str(value).lower() for value in {*values}}
    return len(names) > 1 and names <= {*splits.SPLITS, "val"}


def names_groups(name: str) -> bool:
    """Whether an array or a column of this name says which samples belong together."""
    return _GROUPS.fullmatch(name) is not None
