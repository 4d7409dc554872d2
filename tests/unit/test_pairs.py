"""Pairs of settings: every two values of two axes are in a row together, in fewer rows than the product has."""

from __future__ import annotations

import itertools

from tests.pairs import pairs, sampled


def test_make_test_has_the_pairs_of_a_product_alone() -> None:
    axes = ("ab", "cde", "fgh")
    rows, product = sampled(*axes), list(itertools.product(*axes))
    assert [row.values for row in rows] == product
    assert [row.values for row in rows if not row.marks] == pairs(*axes) != product
    covered = {pair for row in pairs(*axes) for pair in itertools.combinations(row, 2)}
    assert covered == {pair for row in product for pair in itertools.combinations(row, 2)}
