"""Durations have a unit that fits, and never an exponent."""

import pytest

from ketscale.measure.duration import duration


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
        (12_345 * 3600, "12,345 h"),
        (0.0, "0 µs"),
    ],
)
def test_a_duration_in_words(seconds, text):
    assert duration(seconds) == text
