"""The estimators of the ledger: from the usable runs of a claim's points to a number with its interval.

Each gives one value for each seed, so that the interval is one over seeds (see `analysis.intervals`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale.analysis import intervals
from ketscale.analysis.claims import arithmetic
from ketscale.analysis.claims.evidence import AMBIGUOUS, Evidence, Filter
from ketscale.analysis.intervals import FEWEST, Estimate
from ketscale.analysis.points import workers
from ketscale.grid import Run
from ketscale.measure import parity

Spec = Mapping[str, Any]
Group = Mapping[str, Any]

# From the quantity of the run `of` and that of the run `over` with the same seed, and how many times as many workers
# the latter has, to the seed's value.
PAIRED: dict[str, Callable[[float, float, float], float]] = {
    "ratio": lambda of, over, workers: of / over,
    "efficiency": lambda of, over, workers: of / over / workers,
    "reduction": lambda of, over, workers: 1 - over / of,
    "difference": lambda of, over, workers: of - over,
}
GEOMETRIC, DIFFERENCE = ("ratio", "efficiency"), "difference"
LOSSES, VALUE, ARITHMETIC = "losses", "value", "arithmetic"
KINDS = (*PAIRED, LOSSES, VALUE, ARITHMETIC)
# Prefixes of quantities that are spans of sampled steps, joined by ' + '.
SPAN, SHARE, LEAD = "span ", "share ", "lead "


@dataclass(frozen=True)
class Reading:
    """What an estimator came to in one group.

    name: the estimate and its group. estimate: None if there is no number; without ends if there is no interval. fault:
    why the reading decides nothing. absent: whether something has not been measured. runs: those it was read from.
    """

    name: str
    estimate: Estimate | None
    fault: str = ""
    absent: bool = False
    runs: tuple[Run, ...] = ()

    @property
    def words(self) -> str:
        """The reading in words, such as 'speedup (qubits 6) 1.8 (1.7 to 1.9)'."""
        if self.estimate is None:
            return f"{self.name}: {self.fault}"
        found = self.estimate
        if not found.n:
            return f"{self.name} = {found.value:.15g}"
        if self.fault:
            return f"{self.name} {found.value:.4g} ({self.fault})"
        return f"{self.name} {found.value:.4g} ({found.low:.4g} to {found.high:.4g})"


@dataclass(frozen=True)
class Estimates:
    """The estimates of one test on one kind of host."""

    test: Mapping[str, Any]
    studies: Sequence[str]
    evidence: Evidence

    def sides(self, name: str) -> list[Filter]:
        """The filters of the runs that an estimate is read from: of `of` and `over`, or of all its runs."""
        return sides(self.test, self.test["estimates"][name])

    def groups(self, name: str) -> list[Group]:
        """The values of the columns `each` that an estimate is read for; one empty group if it has none of them."""
        filters = self.sides(name)
        free = [column for column in self.test.get("each", ()) if _free(filters, column)]
        if not filters or not free:
            return [{}]
        values = [self._values(filters, column) for column in free]
        return [dict(zip(free, combination, strict=True)) for combination in itertools.product(*values)]

    def read(self, name: str, group: Group) -> Reading:
        """The estimate in a group; columns that it does not depend on are ignored."""
        spec, filters = self.test["estimates"][name], self.sides(name)
        own = {column: value for column, value in group.items() if _free(filters, column)}
        label = f"{name} ({', '.join(f'{column} {value}' for column, value in own.items())})" if own else name
        if kind(spec) == ARITHMETIC:
            value = arithmetic.evaluate(spec[ARITHMETIC])
            return Reading(f"{name} = {spec[ARITHMETIC]}", Estimate(value, value, value, 0))
        bound = [{**f, **{c: v for c, v in own.items() if _open(f, c)}} for f in filters]
        quantity = str(spec[kind(spec)])
        found = [
            self.evidence.measured(self.studies, f, self.test.get("records", {}), quantity) for f in bound
        ]
        for (_, why), wanted in zip(found, bound, strict=True):
            if why:
                absent = not why.startswith(AMBIGUOUS)
                return Reading(label, None, f"{self._words(wanted)} {why}".strip(), absent)
        return self._estimate(label, spec, quantity, [runs for runs, _ in found])

    def _estimate(self, label: str, spec: Spec, quantity: str, sides: Sequence[Mapping[int, Run]]) -> Reading:
        """The estimate from the runs of each side by seed."""
        seeds = sorted(set(sides[0]).intersection(*sides))
        tuples = [tuple(side[seed] for side in sides) for seed in seeds]
        values = [self._value(spec, quantity, runs) for runs in tuples]
        known = [value for value in values if value is not None]
        runs = tuple(
            run for group, value in zip(tuples, values, strict=True) if value is not None for run in group
        )
        if not known:
            return Reading(label, None, f"no seed has {quantity}" + " on both sides" * (len(sides) > 1), True)
        found = self._mean(spec, known)
        if found.low is None:
            few = f"{len(known)} seed{'s' * (len(known) > 1)}; an interval needs {FEWEST}"
            return Reading(label, found, few, runs=runs)
        limit = self.test.get("same_losses")
        apart = max(self._losses(*pair) for pair in tuples) if limit is not None and len(sides) == 2 else 0
        fault = (
            f"its first losses differ by {apart:.1e}, over {limit:.1g}"
            if limit is not None and apart > limit
            else ""
        )
        return Reading(label, found, fault, runs=runs)

    def _mean(self, spec: Spec, values: Sequence[float]) -> Estimate:
        """The estimate from one value for each seed."""
        found = (intervals.ratio if kind(spec) in GEOMETRIC else intervals.mean)(values)
        assert found is not None
        if found.low is None or not (self.test.get("every_seed") or kind(spec) == LOSSES):
            return found
        return Estimate(
            max(values) if kind(spec) == LOSSES else found.value, min(values), max(values), found.n
        )

    def _value(self, spec: Spec, quantity: str, runs: Sequence[Run]) -> float | None:
        """The value of one seed; None if its runs lack the quantity."""
        if kind(spec) == LOSSES:
            return self._losses(runs[0], runs[1])
        amounts = [self._amount(quantity, run) for run in runs]
        if kind(spec) == VALUE:
            return amounts[0]
        of, over = amounts
        if of is None or over is None or (kind(spec) != DIFFERENCE and min(of, over) <= 0):
            return None
        counts = [workers(run.backend, run.ranks, run.threads) for run in runs]
        return PAIRED[kind(spec)](of, over, counts[1] / counts[0])

    def _losses(self, run: Run, other: Run) -> float:
        records = self.evidence.records
        return parity.difference(records[run].losses, records[other].losses)

    def _amount(self, quantity: str, run: Run) -> float | None:
        """A column of runs.csv; or spans of the sampled steps, in seconds, as a share, or over the largest other one."""
        prefix = next((text for text in (SPAN, SHARE, LEAD) if quantity.startswith(text)), None)
        if prefix is None:
            # Without runs of the family, there is no column of its metrics.
            value = self.evidence.rows[run].get(quantity)
            return None if value is None else float(value)
        timing = self.evidence.records[run].timing
        spans = {
            name: span.median_s or 0.0 for name, span in timing.spans.items() if not name.endswith(".total")
        }
        step, names = timing.sampled_step.median_s, quantity.removeprefix(prefix).split(" + ")
        if not spans or not step:
            return None
        # A span that a run never enters takes no time.
        seconds = float(sum(spans.get(name, 0.0) for name in names))
        if prefix == SPAN:
            return seconds
        if prefix == SHARE:
            return seconds / step
        others = [value for name, value in spans.items() if name not in names]
        return seconds / max(others) if others else None

    def _values(self, filters: Sequence[Filter], column: str) -> list[Any]:
        """The values of a free column: those listed by a filter, else those that the studies plan."""
        listed = next((f[column] for f in filters if isinstance(f.get(column), list)), None)
        if listed is not None:
            return list(listed)
        planned = (run for f in filters if _open(f, column) for run in self.evidence.planned(self.studies, f))
        found = {self.evidence.axis(run, column) for run in planned}
        return sorted(found, key=lambda value: (isinstance(value, str), value)) or ["?"]

    def _words(self, wanted: Filter) -> str:
        """What distinguishes the runs of a filter."""
        common = self.test.get("runs", {})
        return ", ".join(f"{name} {value}" for name, value in wanted.items() if name not in common)


def kind(spec: Spec) -> str:
    """The kind of an estimate, which is its one key among `KINDS`."""
    return next(name for name in KINDS if name in spec)


def sides(test: Mapping[str, Any], spec: Spec) -> list[Filter]:
    """The filters of an estimate's runs; none for arithmetic."""
    if kind(spec) == ARITHMETIC:
        return []
    shared = {**test.get("runs", {}), **spec.get("runs", {})}
    return [{**shared, **spec[side]} for side in ("of", "over") if side in spec] or [shared]


def filters(test: Mapping[str, Any]) -> Iterator[Filter]:
    """The filters of all runs that a test is about."""
    for spec in test["estimates"].values():
        yield from sides(test, spec)


def _open(wanted: Filter, column: str) -> bool:
    """Whether a filter leaves a column to the group."""
    return column not in wanted or isinstance(wanted[column], list)


def _free(filters: Sequence[Filter], column: str) -> bool:
    """Whether an estimate depends on a column of `each`."""
    return any(_open(wanted, column) for wanted in filters)
