"""Splits of samples into training, validation and test.

A split that is drawn puts equal samples into one part, as if they were one sample. A split that is given, or that follows
groups or recordings, is kept as it is. Samples that have something in common with a sample of another part are counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, short
from ketscale.optional import needed_for
from ketscale.problems.arrays import class_names

SPLITS = ("train", "validation", "test")
# The sorted indices of the samples in each of `SPLITS`, which are disjoint.
Parts = dict[str, NDArray[np.int64]]
# Pairs (mark, sample), int64 (m, 2). Samples with the same mark have something in common, such as a person.
Marks = NDArray[np.int64]
NO_MARKS: Marks = np.empty((0, 2), np.int64)


def first_equal(samples: NDArray[Any]) -> NDArray[np.int64]:
    """For each of the samples (n, ...) the index of the first one with the same values, int64 (n,).

    Values are compared exactly.
    """
    first: dict[bytes, int] = {}
    # Adding 0 makes -0.0 the 0.0 that it equals.
    digests = (hashlib.blake2b((sample + 0).tobytes(), digest_size=16).digest() for sample in samples)
    return np.array([first.setdefault(digest, i) for i, digest in enumerate(digests)], dtype=np.int64)


def first_equal_features(features: NDArray[np.float64]) -> NDArray[np.int64]:
    """`first_equal` of features (n, k); two values are equal if they are the same number in single precision.

    A model gets the features in that precision, standardised. So they are compared both before and after that.
    """
    return first_equal(np.stack([_levels(column) for column in features.T], axis=1))


def _levels(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Numbers (n,) of the levels that a feature's values are on."""
    order = np.argsort(values, kind="stable")
    # A power of two as the unit: nothing overflows, and whole numbers stay whole.
    ordered = np.ldexp(values[order], -np.frexp(np.abs(values).max())[1])
    deviation = ordered.std() or 1.0
    distinct = np.ones(len(values) - 1, bool)
    for scaled in (ordered, (ordered - ordered.mean()) / deviation):
        distinct &= np.diff(scaled.astype(np.float32)) > 0
    levels = np.zeros(len(values), np.int64)
    levels[order[1:]] = np.cumsum(distinct)
    return levels


def marked(codes: NDArray[np.int64]) -> Marks:
    """The marks of samples that have one each, such as its group, int64 (n,)."""
    return np.stack([codes, np.arange(len(codes))], axis=1)


def with_copies(parts: Parts, equal: NDArray[np.int64]) -> Parts:
    """The parts of the samples that equal no earlier one, and with them those that do.

    equal: `first_equal` of all samples.
    """
    return {name: np.flatnonzero(np.isin(equal, rows)) for name, rows in parts.items()}


def shared(parts: Parts, equal: NDArray[np.int64], marks: Marks = NO_MARKS) -> int:
    """How many samples of validation and test have something in common with a part before theirs.

    The order is train, validation, test. equal: `first_equal` of all samples. marks: what else may be in common.
    """
    count, before = 0, parts["train"]
    for name in SPLITS[1:]:
        rows = parts[name]
        earlier = marks[np.isin(marks[:, 1], before), 0]
        related = marks[np.isin(marks[:, 0], earlier), 1]
        count += int((np.isin(equal[rows], equal[before]) | np.isin(rows, related)).sum())
        before = np.append(before, rows)
    return count


def stratified(
    labels: NDArray[np.int64], among: NDArray[np.int64], count: int, seed: int, extra: str = "images"
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split the indices `among` into (the rest, `count` drawn with each label's share), both sorted.

    labels: int64 (n,), those of all samples. extra: the one to install where scikit-learn is missing.
    """
    with needed_for("a split with each label's share", extra):
        from sklearn.model_selection import train_test_split

    rest, sample = train_test_split(among, test_size=count, stratify=labels[among], random_state=seed)
    return np.sort(rest), np.sort(sample)


def by_shares(
    labels: NDArray[np.int64],
    classes: Sequence[str],
    shares: Mapping[str, float],
    seed: int,
    equal: NDArray[np.int64],
    folds: int | None = None,
) -> Parts:
    """Draw a share of each class for validation and test, at least one sample unless it is 0; the rest is train.

    Equal samples count as one, of the class of the first of them, and are in one part.

    labels: int64 (n,), indices into `classes`. equal: `first_equal` of the samples. folds: the test is one of so many equal
    parts, that of the seed; each of `folds` seeds in a row has another one.

    Raises:
        UserError: a class has too few samples for all parts.
    """
    different = equal == np.arange(len(labels))
    generator = np.random.default_rng(seed // folds if folds else seed)
    all_parts = []
    for label, name in enumerate(classes):
        rows = generator.permutation(np.flatnonzero(different & (labels == label)))
        all_parts.append(_parts(rows, shares, seed, folds))
        if not len(all_parts[-1]["train"]):
            once = "" if different.all() else ", if equal ones count once"
            of_class = "there are" if len(classes) == 1 else f"class {short(repr(name))} has"
            raise UserError(
                f"{of_class} {len(rows)} samples{once}: too few to train on after validation and test; add samples"
                f"{', or leave the class out' * (len(classes) > 1)}"
            )
    return with_copies({part: np.concatenate([each[part] for each in all_parts]) for part in SPLITS}, equal)


def _parts(
    units: NDArray[np.int64],
    shares: Mapping[str, float],
    seed: int,
    folds: int | None,
    among: int | None = None,
) -> Parts:
    """Permuted units in parts: of folds the test is that of the seed, and else each part is the next of the units.

    among: the number that shares are of; by default that of the units outside a fold that is the test.
    """
    parts = {}
    if folds:
        test = np.arange(len(units)) % folds == seed % folds
        parts["test"], units = units[test], units[~test]
    among = len(units) if among is None else among
    counts = {part: _count(share, among) for part, share in shares.items() if part not in parts}
    for part, count in counts.items():
        parts[part], units = units[:count], units[count:]
    return {**parts, "train": units}


def by_group(
    groups: NDArray[np.int64], validation: float, test: float, seed: int, what: str, folds: int | None = None
) -> Parts:
    """Draw shares of the groups for validation and test, at least one group each unless the share is 0.

    No group is in two parts.

    groups: int64 (n,), the group of each sample. what: what errors call the groups, e.g. 'subjects'. folds: see `by_shares`.

    Raises:
        UserError: there are too few groups for three parts.
    """
    order = np.random.default_rng(seed // folds if folds else seed).permutation(np.unique(groups))
    parts = _parts(order, {"test": test, "validation": validation}, seed, folds, len(order))
    if not len(parts["train"]) or not len(parts["test"]):
        raise UserError(f"a split by {what} needs more than {len(order)} of them; choose another split")
    return {name: np.flatnonzero(np.isin(groups, parts[name])) for name in SPLITS}


def by_time(times: NDArray[Any], validation: float, test: float) -> Parts:
    """The latest samples are the test, those before them validation, and the earliest are trained on.

    times: real (n,). Samples of one time are in one part, the later one.

    Raises:
        UserError: there are too few different times for all parts.
    """
    tested = _count(test, len(times))
    held_out = min(tested + _count(validation, len(times)), len(times))
    bounds = np.sort(times)[[-held_out, -tested]]
    later = np.searchsorted(bounds, times, side="right")
    parts = {name: np.flatnonzero(later == number) for number, name in enumerate(SPLITS)}
    if not all(len(parts[name]) for name in ("train", "test", *["validation"] * bool(validation))):
        raise UserError("a split by time needs different times for each part; add samples")
    return parts


def _count(share: float, among: int) -> int:
    """How many are drawn for a part: at least one, if its share is not 0."""
    return max(1, round(share * among)) if share else 0


def predefined(names: NDArray[Any], where: str, count: int) -> Parts:
    """The parts that an array gives.

    names: text (count,), each one of `SPLITS`, or val for validation, which may have no sample. where: the array's name in
    errors.

    Raises:
        UserError: the array has another shape or another name, or train or test has no samples.
    """
    names = class_names(names, where, count, "sample")
    names = np.where(names == "val", "validation", names)
    parts = {name: np.flatnonzero(names == name) for name in SPLITS}
    if other := sorted({*map(str, names)} - {*SPLITS}):
        raise UserError(f"{where}: {short(repr(other[0]))} is not a part, one of {', '.join(SPLITS)}")
    for name in ("train", "test"):
        if not len(parts[name]):
            raise UserError(f"{where}: no sample is in part {name}; put some into it")
    return parts


def check_trained(parts: Parts, labels: NDArray[np.int64], classes: Sequence[str], remedy: str) -> None:
    """Check that every class has a training sample.

    remedy: the advice in the error.

    Raises:
        UserError: a class has none.
    """
    missing = set(range(len(classes))) - set(np.unique(labels[parts["train"]]).tolist())
    if missing:
        raise UserError(f"class {short(repr(classes[min(missing)]))} has no training sample; {remedy}")
