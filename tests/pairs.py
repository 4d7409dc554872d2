"""Pairs of settings instead of products: what two settings do to each other shows, at a fraction of the cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def pairs(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Few rows with a value of each axis, such that every two values of two axes are in a row together."""
    values = [list(axis) for axis in axes]
    rows = list(itertools.product(*(range(len(axis)) for axis in values)))

    def of(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(itertools.combinations(enumerate(row), 2))

    left, selected = set().union(*map(of, rows)), []
    while left:
        best = max(rows, key=lambda row: len(of(row) & left))
        left -= of(best)
        selected.append(best)
    return [tuple(axis[i] for axis, i in zip(values, row, strict=True)) for row in sorted(selected)]


def sampled(*axes: Iterable[Any]) -> list[Any]:
    """All rows of a product as parameters of a test; `make test` has those of `pairs` alone."""
    values = [list(axis) for axis in axes]
    first = set(pairs(*(range(len(axis)) for axis in values)))
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(values, row, strict=True)),
            marks=[] if row in first else pytest.mark.nightly,
        )
        for row in itertools.product(*(range(len(axis)) for axis in values))
    ]
