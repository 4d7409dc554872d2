"""Durations have a unit that fits, and never an exponent; tables are aligned."""

import pytest

from ketscale.words import aligned, counted, duration, spelled


@pytest.mark.parametrize(
    "seconds, text",
    [
        (2.5e-3, "2.5 ms"),
        (0.99951, "1 s"),
        (0.9994, "999 ms"),
        (9.9996e-4, "1 ms"),
        (59.99, "1 min"),
        (59.9, "59.9 s"),
        (3599.9, "1 h"),
        (90 * 60, "1.5 h"),
        (12_345 * 3600, "514 days"),
        (4e-7, "0.4 µs"),
        (0.0, "0 s"),
    ],
)
def test_a_duration_in_words(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    "seconds, said", [(0, "0 s"), (59.6, "60 s"), (1234, "21 min"), (12345, "3.4 h"), (1e6, "12 days")]
)
def test_an_estimate_claims_no_more_than_two_digits(seconds, said):
    assert duration(seconds, 2) == said


def test_one_thing_is_not_several():
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_small_counts_are_spelled():
    assert [spelled(number) for number in (0, 1, 12, 13, 1024)] == ["no", "one", "twelve", "13", "1,024"]


def test_the_cells_of_a_column_stand_below_each_other():
    assert aligned([["", "runs"], ["a", "12"], ["bcd", "1"]], right={1}) == [
        "     runs",
        "a      12",
        "bcd     1",
    ]
