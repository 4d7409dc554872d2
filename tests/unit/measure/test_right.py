"""Single cases survive packing."""

import random

import pytest

from ketscale.measure.right import packed, unpacked


@pytest.mark.parametrize("count", [0, 7, 8, 9])
def test_one_case_a_sample(count):
    cases = [random.Random(count).randint(0, 1) for _ in range(count)]
    result = packed([[case] for case in cases])
    assert (result.samples, result.cases) == (count, None)
    assert unpacked(result) == [(case, 1) for case in cases]
    assert len(result.bits) <= 4 * (count // 24 + 1), "one bit a case"


def test_samples_of_several_cases_and_of_none():
    result = packed([[1, 0, -1], [-1, -1, -1], [1, 1, 1]])
    assert result.cases == [2, 0, 3]
    assert unpacked(result) == [(1, 2), (0, 0), (3, 3)]
