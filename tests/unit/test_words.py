"""Durations have a unit that fits, and never an exponent; tables are aligned."""

from ketscale.errors import short
from ketscale.words import aligned, counted, duration, spelled


def test_a_duration_in_words():
    for seconds, text in (
        (0.99951, "1 s"),
        (0.9994, "999 ms"),
        (59.99, "1 min"),
        (59.9, "59.9 s"),
        (0.0, "0 s"),
    ):
        assert duration(seconds) == text
    assert [duration(seconds, 2) for seconds in (59.6, 12345, 1e6)] == ["60 s", "3.4 h", "12 days"]
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [spelled(number) for number in (1, 12, 13, 1024)] == ["one", "twelve", "13", "1,024"]


def test_the_cells_of_a_column_stand_below_each_other():
    assert aligned([["", "runs"], ["a", "12"], ["bcd", "1"]], right={1}) == [
        "     runs",
        "a      12",
        "bcd     1",
    ]


def test_what_a_library_says_becomes_one_short_line():
    assert short("two\n lines\x1b" + "x" * 500) == r"two lines\x1b" + "x" * 106 + "…"
