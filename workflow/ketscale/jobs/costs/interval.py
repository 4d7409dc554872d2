"""An expected value with its 90 % interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ketscale.words import duration


@dataclass(frozen=True)
class Interval:
    """An expected value, and the ends of its 90 % interval."""

    middle: float
    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        """The sum, whose ends are those of values that err together."""
        return Interval(self.middle + other.middle, self.low + other.low, self.high + other.high)

    def minus(self, part: Interval) -> Interval:
        """What is left without a part, whose values err together with these."""
        return Interval(self.middle - part.middle, self.low - part.low, self.high - part.high)

    def less(self, amount: float) -> Interval:
        """What is left of a value of which an amount is spent."""
        return Interval(*(max(0.0, value - amount) for value in (self.middle, self.low, self.high)))

    def times(self, factor: float) -> Interval:
        """A multiple."""
        return Interval(self.middle * factor, self.low * factor, self.high * factor)


NOTHING = Interval(0.0, 0.0, 0.0)


def total(intervals: Iterable[Interval]) -> Interval:
    """The sum of all, as an interval for the case that all err to the same side."""
    return sum(intervals, NOTHING)


def between(time: Interval) -> str:
    """A time in seconds with its interval, in words."""
    middle, low, high = (duration(seconds, 2) for seconds in (time.middle, time.low, time.high))
    return f"{middle} ({low} to {high})"
