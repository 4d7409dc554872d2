"""Pairs of settings: every two values of two axes are in a row together, in fewer rows than the product has."""

from __future__ import annotations

import itertools

import pytest

from tests.pairs import pairs, sampled


@pytest.mark.parametrize("sizes", [(3, 2), (8, 6, 2), (4, 3, 5), (2, 2, 2, 2), (3, 3, 3, 2)])
def test_every_two_values_of_two_axes_are_in_a_row(sizes: tuple[int, ...]) -> None:
    axes = [[f"{axis}-{value}" for value in range(size)] for axis, size in enumerate(sizes)]
    rows = pairs(*axes)
    met = {pair for row in rows for pair in itertools.combinations(row, 2)}
    assert met >= {
        pair for one, other in itertools.combinations(axes, 2) for pair in itertools.product(one, other)
    }
    assert len(rows) == len(set(rows)) and set(rows) <= set(itertools.product(*axes))
    least = max(len(one) * len(other) for one, other in itertools.combinations(axes, 2))
    assert least <= len(rows) <= 1.5 * least + 2


def test_make_test_has_the_pairs_of_a_product_alone() -> None:
    axes = ("ab", "cde", "fgh")
    rows = sampled(*axes)
    assert [row.values for row in rows] == list(itertools.product(*axes))
    assert [row.values for row in rows if not row.marks] == pairs(*axes) != list(itertools.product(*axes))
    assert {mark.name for row in rows for mark in row.marks} == {"nightly"}
