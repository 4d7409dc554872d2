"""What a rule reads: ratios, efficiencies, values and losses of a claim's runs, and whether they are beyond a threshold.

What has not been measured is neither beyond a threshold nor not: truth has three values (Kleene), so that a claim is
decided before everything has been measured, if the rest cannot change the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ketscale.analysis import comparison, intervals, metrics
from ketscale.analysis.claims import evidence
from ketscale.analysis.claims.evidence import AMBIGUOUS, UNPLANNED, UNTIMED, Filter
from ketscale.analysis.claims.ledger import Claim
from ketscale.analysis.collected import Collected
from ketscale.analysis.intervals import FEWEST, Estimate
from ketscale.analysis.points import Row, workers
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure import parity
from ketscale.measure.form import Record, Timing

SAME_LOSSES, LOSSES, TESTED = "same_losses", "losses", f"{UNTIMED}result"


class Spans:
    """Seconds of a sampled step in some spans; or over those of the step; or over those of the largest other span."""

    def __init__(self, *names: str, over: Literal["", "the step", "the largest other"] = "") -> None:
        self.names, self.over = names, over

    def __str__(self) -> str:
        return " + ".join(self.names) + f" over {self.over}" * bool(self.over)

    def of(self, timing: Timing) -> float | None:
        """The amount in a record's timing; None if no step was sampled."""
        known = {name: span.median_s or 0.0 for name, span in timing.spans.items()}
        spans = {name: seconds for name, seconds in known.items() if not name.endswith(".total")}
        step = timing.sampled_step.median_s
        if not spans or not step:
            return None
        # A span that a run never enters takes no time.
        seconds = float(sum(spans.get(name, 0.0) for name in self.names))
        others = [value for name, value in spans.items() if name not in self.names]
        whole = {"": 1.0, "the step": step, "the largest other": max(others, default=None)}[self.over]
        return seconds / whole if whole else None


# A column of runs.csv, or spans.
Quantity = str | Spans


@dataclass(frozen=True)
class Finding:
    """Whether a condition holds, None if that is unknown; the reading that shows it, and all that it is about."""

    truth: bool | None
    witness: Reading
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class Reading:
    """What a reader came to.

    estimate: None if there is no number; without ends if there is no interval. fault: why the reading decides nothing.
    absent: whether something has not been measured. planned: the runs asked for. runs: those it was read from.
    """

    name: str
    claim: Claim = field(repr=False, compare=False)
    estimate: Estimate | None
    fault: str = ""
    absent: bool = False
    planned: tuple[Run, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def words(self) -> str:
        """The reading in words, such as 'speedup (qubits 6) 1.8 (1.7 to 1.9)'."""
        if self.estimate is None:
            return f"{self.name}: {self.fault}"
        found = self.estimate
        ends = self.fault or f"{found.low:.4g} to {found.high:.4g}"
        return f"{self.name} {found.value:.4g} ({ends})"

    def below(self, bound: str) -> Finding:
        """Whether the whole interval is below a threshold, or below a range."""
        return self._finding(bound, lambda low, high, least, most: high < least)

    def above(self, bound: str | Reading) -> Finding:
        """Whether the whole interval is above a threshold, above a range, or above another reading's interval."""
        return self._finding(bound, lambda low, high, least, most: low > most)

    def at_most(self, bound: str) -> Finding:
        """Whether no part of the interval is above a threshold."""
        return self._finding(bound, lambda low, high, least, most: high <= least)

    def at_least(self, bound: str) -> Finding:
        """Whether no part of the interval is below a threshold."""
        return self._finding(bound, lambda low, high, least, most: low >= most)

    def within(self, bound: str) -> Finding:
        """Whether the whole interval is in a range."""
        return self._finding(bound, lambda low, high, least, most: least <= low and high <= most)

    def _finding(self, bound: str | Reading, holds: Callable[[float, float, float, float], bool]) -> Finding:
        if isinstance(bound, str):
            truth = None if self.fault else holds(*self.ends, *self.claim.limits(bound))
            return Finding(truth, self, (self,))
        if bound.fault:
            return Finding(None, bound, (self, bound))
        return Finding(None if self.fault else holds(*self.ends, *bound.ends), self, (self, bound))

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval, in a reading without a fault."""
        assert self.estimate is not None and self.estimate.low is not None and self.estimate.high is not None
        return self.estimate.low, self.estimate.high


def every(findings: Iterable[Finding]) -> Finding:
    """False if one is, else unknown if one is, else true; with the first finding that shows it."""
    return _first(findings, (False, None))


def some(findings: Iterable[Finding]) -> Finding:
    """True if one is, else unknown if one is, else false; with the first finding that shows it."""
    return _first(findings, (True, None))


def _first(findings: Iterable[Finding], order: Sequence[bool | None]) -> Finding:
    found = list(findings)
    shows = next((each for truth in order for each in found if each.truth is truth), found[0])
    return replace(shows, readings=tuple(dict.fromkeys(one for each in found for one in each.readings)))


@dataclass(frozen=True)
class Reader:
    """Reads the runs of a claim that pass a filter. group: what distinguishes them from those of its other readers."""

    claim: Claim
    collected: Collected
    wanted: Filter = field(default_factory=dict)
    group: str = ""
    own_cores: bool = False

    def of(self, **wanted: Any) -> Reader:
        """A reader of the runs that have these values besides."""
        return replace(self, wanted={**self.wanted, **wanted})

    def on_own_cores(self) -> Reader:
        """A reader of the runs whose threads had a core each."""
        return replace(self, own_cores=True)

    def each(self, name: str, *values: Any, **among: Any) -> list[Reader]:
        """A reader for each value of an axis: the given ones, or those that are planned, where runs have the values `among`."""
        found = values or evidence.values(
            self.collected.config, self._studies, {**self.wanted, **among}, name
        )
        comma = ", " * bool(self.group)
        return [
            replace(self, wanted={**self.wanted, name: value}, group=f"{self.group}{comma}{name} {value}")
            for value in found or ["?"]
        ]

    def ratio(self, name: str, quantity: Quantity, of: Filter, over: Filter) -> Reading:
        """`of` over `over`, paired by seed."""
        timed = not str(quantity).startswith(UNTIMED)
        least = self.collected.times.least if timed else 0.0
        return self._read(name, quantity, lambda of, over: comparison.paired(of, over, least), of, over)

    def efficiency(self, name: str, quantity: Quantity, of: Filter, over: Filter) -> Reading:
        """The ratio, divided by how many times as many workers `over` has."""
        found = self.ratio(name, quantity, of, over)
        if found.estimate is None:
            return found
        one, more = (workers(run.layout) for run in found.runs[:2])
        return replace(found, estimate=found.estimate.times(one / more))

    def difference(self, name: str, of: Filter, over: Filter) -> Reading:
        """`of` minus `over` in the test's headline metric, paired by seed and sample."""
        config = self.collected.config
        return self._read(name, TESTED, lambda of, over: _difference(config, of, over), of, over)

    def value(self, name: str, quantity: Quantity) -> Reading:
        """What is typical of the seeds."""
        return self._read(name, quantity, lambda values: intervals.typical(list(values.values())), {})

    def losses(self, name: str, of: Filter, over: Filter) -> Reading:
        """The largest relative difference of the first 20 losses in a pair of one seed; every pair must agree, so no mean."""
        return self._read(name, LOSSES, _farthest, of, over)

    @property
    def _studies(self) -> list[str]:
        return [study.rpartition("#")[2] for study in self.claim.studies]

    def _read(
        self, name: str, quantity: Quantity, estimate: Callable[..., Estimate | None], *sides: Filter
    ) -> Reading:
        """estimate: from the amounts of each side by seed; None without a seed that all sides have."""
        label = f"{name} ({self.group})" if self.group else name
        config = self.collected.config
        planned = [evidence.planned(config, self._studies, {**self.wanted, **side}) for side in sides]
        blank = Reading(label, self.claim, None, planned=tuple(itertools.chain(*planned)))
        found = [evidence.measured(self.collected, runs, str(quantity), self.own_cores) for runs in planned]
        faults = [(why, side) for (_, why), side in zip(found, sides, strict=True) if why]
        if faults:
            # What nobody has planned will not come.
            why, side = max(faults, key=lambda fault: fault[0] == UNPLANNED)
            words = ", ".join(f"{axis} {value}" for axis, value in side.items())
            return replace(blank, fault=f"{words} {why}".strip(), absent=not why.startswith(AMBIGUOUS))
        if why := comparison.apart([*found[0][0].values()], [*found[-1][0].values()]):
            return replace(blank, fault=why)
        amounts = [
            {
                seed: amount
                for seed, row in rows.items()
                if (amount := self._amount(quantity, row)) is not None
            }
            for rows, _ in found
        ]
        estimated = estimate(*amounts)
        if estimated is None:
            both = " on both sides" * (len(sides) > 1)
            return replace(blank, fault=f"no seed has {quantity}{both}", absent=True)
        seeds = sorted(set[int].intersection(*map(set, amounts)))
        pairs = [tuple(Run.of(rows[seed]) for rows, _ in found) for seed in seeds]
        return replace(
            blank,
            estimate=estimated,
            fault=self._fault(estimated, pairs),
            runs=tuple(itertools.chain(*pairs)),
        )

    def _fault(self, estimate: Estimate, pairs: Sequence[Sequence[Run]]) -> str:
        """Why an estimate from these runs decides nothing."""
        if estimate.low is None or estimate.n < FEWEST:
            return f"{estimate.n} seed{'s' * (estimate.n > 1)}; an interval needs {FEWEST}"
        if SAME_LOSSES not in self.claim.thresholds or len(pairs[0]) < 2:
            return ""
        records = self.collected.records
        losses = [[records[run].losses for run in pair] for pair in pairs]
        apart, (limit, _) = max(parity.difference(*pair) for pair in losses), self.claim.limits(SAME_LOSSES)
        return f"its first losses differ by {apart:.1e}, over {limit:.1g}" if apart > limit else ""

    def _amount(self, quantity: Quantity, row: Row) -> Any:
        """What a run has of a quantity; None if it lacks it."""
        record = self.collected.records[Run.of(row)]
        if isinstance(quantity, Spans):
            return quantity.of(record.timing)
        # Without runs of the family, there is no column of its metrics.
        return record.losses if quantity == LOSSES else record if quantity == TESTED else row.get(quantity)


def _difference(config: Config, of: Mapping[int, Record], over: Mapping[int, Record]) -> Estimate | None:
    if not of or not over:
        return None
    metric = config.family(str(next(iter(of.values())).run["workload"])).headline
    one, two = (metrics.scored(side.values(), metric) for side in (of, over))
    return metrics.difference(one, two, metric)


def _farthest(of: Mapping[int, Sequence[float]], over: Mapping[int, Sequence[float]]) -> Estimate | None:
    """The largest difference of a pair, and the range of all."""
    apart = [parity.difference(of[seed], over[seed]) for seed in of.keys() & over.keys()]
    if not apart:
        return None
    few = len(apart) < FEWEST
    return Estimate(max(apart), None if few else min(apart), None if few else max(apart), len(apart))
