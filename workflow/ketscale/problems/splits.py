"""Splits of labelled samples into training, validation and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.problems import arrays

SPLITS = ("train", "validation", "test")
# The sorted indices of the samples in each of `SPLITS`, which are disjoint.
Parts = dict[str, NDArray[np.int64]]


def stratified(
    labels: NDArray[np.int64], among: NDArray[np.int64], count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split the indices `among` into (the rest, `count` drawn with each label's share), both sorted.

    labels: int64 (n,), those of all samples.
    """
    from sklearn.model_selection import train_test_split

    rest, drawn = train_test_split(among, test_size=count, stratify=labels[among], random_state=seed)
    return np.sort(rest), np.sort(drawn)


def by_shares(
    labels: NDArray[np.int64], classes: Sequence[str], shares: Mapping[str, float], seed: int
) -> Parts:
    """Draw a share of each class for every part in `shares`, at least one sample; the rest is train.

    labels: int64 (n,), indices into `classes`.

    Raises:
        UserError: a class has too few samples for all parts.
    """
    generator = np.random.default_rng(seed)
    drawn: dict[str, list[NDArray[np.int64]]] = {name: [] for name in ("train", *shares)}
    for label, name in enumerate(classes):
        rows = generator.permutation(np.flatnonzero(labels == label))
        counts = {part: max(1, round(share * len(rows))) for part, share in shares.items()}
        if len(rows) <= sum(counts.values()):
            parts = ", ".join(f"{count} for {part}" for part, count in counts.items())
            raise UserError(
                f"class {name!r} has {len(rows)} samples: after {parts} none is left to train on; "
                f"add samples, or leave the class out"
            )
        for part, count in counts.items():
            drawn[part].append(rows[:count])
            rows = rows[count:]
        drawn["train"].append(rows)
    return {part: np.sort(np.concatenate(rows)) for part, rows in drawn.items()}


def by_group(groups: NDArray[np.int64], validation: float, test: float, seed: int, what: str) -> Parts:
    """Draw shares of the groups, at least one group each, for validation and test: no group is in two parts.

    groups: int64 (n,), the group of each sample. what: what errors call the groups, e.g. 'subjects'.

    Raises:
        UserError: there are too few groups for three parts.
    """
    drawn = np.random.default_rng(seed).permutation(np.unique(groups))
    first = max(1, round(test * len(drawn)))
    second = first + max(1, round(validation * len(drawn)))
    if len(drawn) <= second:
        raise UserError(
            f"a split by {what} needs at least {second + 1} {what}, not {len(drawn)}: "
            f"choose another split, or add {what}"
        )
    parts = {"train": drawn[second:], "validation": drawn[first:second], "test": drawn[:first]}
    return {name: np.flatnonzero(np.isin(groups, parts[name])) for name in SPLITS}


def as_given(names: NDArray[np.str_], labels: NDArray[np.int64], classes: Sequence[str], where: str) -> Parts:
    """The parts that an array gives.

    names: text (n,), each one of `SPLITS`. where: the array's name in errors.

    Raises:
        UserError: the array has another shape or another name, a part has no samples, or a class no training sample.
    """
    names = arrays.named(names, len(labels), where, "sample")
    other = sorted(set(map(str, names.tolist())) - set(SPLITS))
    if other:
        raise UserError(f"{where}: {other[0]!r} is not a part; each value must be one of {', '.join(SPLITS)}")
    parts = {name: np.flatnonzero(names == name) for name in SPLITS}
    for name, rows in parts.items():
        if not len(rows):
            raise UserError(f"{where}: no sample is in part {name}; put some into it")
    check_trained(parts, labels, classes, f"change {where}")
    return parts


def check_trained(parts: Parts, labels: NDArray[np.int64], classes: Sequence[str], remedy: str) -> None:
    """Check that every class has a training sample.

    remedy: what the error tells the user to do.

    Raises:
        UserError: a class has none.
    """
    missing = set(range(len(classes))) - set(np.unique(labels[parts["train"]]).tolist())
    if missing:
        raise UserError(f"class {classes[min(missing)]!r} has no training sample; {remedy}")
