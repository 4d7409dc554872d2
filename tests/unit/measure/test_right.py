"""Single cases survive packing."""

import random

import pytest

from ketscale.measure.right import packed, unpacked


@pytest.mark.parametrize("count", [0, 7, 8, 9])
def test_one_case_a_sample(count):
    cases = [random.Random(count).randint(0, 1) for _ in range(count)]
    found = packed([[case] for case in cases])
    assert (found.samples, found.cases) == (count, None)
    assert unpacked(found) == [(case, 1) for case in cases]
    assert len(found.bits) <= 4 * (count // 24 + 1), "one bit a case"


def test_samples_of_several_cases_and_of_none():
    found = packed([[1, 0, -1], [-1, -1, -1], [1, 1, 1]])
    assert found.cases == [2, 0, 3]
    assert unpacked(found) == [(1, 2), (0, 0), (3, 3)]
