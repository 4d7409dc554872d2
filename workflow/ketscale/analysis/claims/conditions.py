"""Conditions on estimates, in the three-valued logic of Kleene: what has not been measured is neither true nor false.

So a claim can be decided before everything has been measured, if the rest cannot change the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ketscale.analysis.claims.estimates import Estimates, Group, Reading

Condition = Mapping[str, Any]
Truth = bool | None
ALL, ANY, EVERY, SOME, LAST = "all", "any", "every", "some", "last"
WORDS = (ALL, ANY, EVERY, SOME, LAST)


@dataclass(frozen=True)
class Finding:
    """Whether a condition holds, and the reading that shows it."""

    truth: Truth
    witness: Reading | None = None


@dataclass
class Conditions:
    """Evaluates conditions on the estimates of a test; `readings` has all that were asked for."""

    estimates: Estimates
    readings: dict[tuple[Any, ...], Reading] = field(default_factory=dict)

    def evaluate(self, condition: Condition, group: Group | None = None) -> Finding:
        """Whether a condition holds: in a group, or without one in every group of its estimate."""
        return _and(self._part(key, inner, group) for key, inner in condition.items())

    def _part(self, key: str, inner: Any, group: Group | None) -> Finding:
        if key in (ALL, ANY):
            found = (self.evaluate(each, group) for each in inner)
            return _and(found) if key == ALL else _or(found)
        if key in (EVERY, SOME, LAST):
            groups = self._groups(inner)
            if key == LAST:
                groups = self._last(groups)
            found = (self.evaluate(inner, each) for each in groups)
            return _or(found) if key == SOME else _and(found)
        if group is None:
            return self._part(EVERY, {key: inner}, None)
        ((relation, bound),) = inner.items()
        return self._holds(key, relation, bound, group)

    def _holds(self, name: str, relation: str, bound: Any, group: Group) -> Finding:
        reading = self._read(name, group)
        limits = [bound, bound] if isinstance(bound, int | float) else bound
        if isinstance(bound, str):
            other = self._read(bound, group)
            if other.fault:
                return Finding(None, other)
            limits = _ends(other)
        if reading.fault:
            return Finding(None, reading)
        return Finding(_compare(relation, _ends(reading), limits), reading)

    def _read(self, name: str, group: Group) -> Reading:
        key = (name, *sorted(group.items()))
        if key not in self.readings:
            self.readings[key] = self.estimates.read(name, group)
        return self.readings[key]

    def _groups(self, condition: Condition) -> list[Group]:
        """The groups of a condition: those of the estimate in it that depends on the most columns."""
        found = [self.estimates.groups(name) for name in names(condition)]
        return max(found, key=lambda groups: len(groups[0]))

    def _last(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with the largest value of their last column."""
        columns = list(groups[0])
        if not columns:
            return list(groups)
        largest = max(group[columns[-1]] for group in groups)
        return [group for group in groups if group[columns[-1]] == largest]


def names(condition: Condition) -> Iterator[str]:
    """The estimates in a condition, in its order."""
    for key, inner in condition.items():
        if key in (ALL, ANY):
            for each in inner:
                yield from names(each)
        elif key in WORDS:
            yield from names(inner)
        else:
            yield key
            yield from (bound for bound in inner.values() if isinstance(bound, str))


def _ends(reading: Reading) -> list[float]:
    estimate = reading.estimate
    assert estimate is not None and estimate.low is not None and estimate.high is not None
    return [estimate.low, estimate.high]


def _compare(relation: str, interval: Sequence[float], limits: Sequence[float]) -> bool:
    """Whether a whole interval is below, above, within or outside its limits, or overlaps them."""
    (low, high), (least, most) = interval, limits
    return {
        "below": high < least,
        "above": low > most,
        "at_most": high <= least,
        "at_least": low >= most,
        "within": least <= low and high <= most,
        "outside": high < least or low > most,
        "overlaps": low <= most and high >= least,
    }[relation]


def _and(findings: Iterable[Finding]) -> Finding:
    """False if one is, else unknown if one is, else true; with the first finding that shows it."""
    found = list(findings)
    return next((each for truth in (False, None) for each in found if each.truth is truth), found[0])


def _or(findings: Iterable[Finding]) -> Finding:
    """True if one is, else unknown if one is, else false; with the first finding that shows it."""
    found = list(findings)
    return next((each for truth in (True, None) for each in found if each.truth is truth), found[0])
