"""What a rule reads of a claim's runs, and the conditions that it makes of that.

A condition is asked at a level of confidence, so that all that a rule joins holds together with 95 %. Any one of k
conditions may hold by chance, so `some` asks each of them at 1 - 5 % / k (Bonferroni). `every` asks each at its own
level: that all hold by chance is no more likely than that one does (Berger, Technometrics 24, 295, 1982).

What has not been measured is neither beyond a threshold nor not: truth has three values (Kleene), so that a claim is
decided before everything has been measured, if the rest cannot change the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.claims.ledger import Claim
from ketscale.analysis import comparability, comparison, metrics, verdicts
from ketscale.analysis.comparison import Collected
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.analysis.points import Row, axis_of, mostly_failed, point_of, usable, workers
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure import parity
from ketscale.measure.form import Record, Timing

# Axes of runs, sizes by name, or layout, with the value that a run must have.
Filter = Mapping[str, Any]
# Measured by the test, not by the clock, so that other work on the host changes nothing.
UNTIMED = "test_"
# Properties of a simulator on the test split alone, so that chance has no part in them.
OF_SIMULATORS = {f"{UNTIMED}simulator_error", f"{UNTIMED}negativity"}
SAME_LOSSES, LOSSES, TESTED = "same_losses", "losses", f"{UNTIMED}result"
# Why nothing was measured, if the config does not ask for it; and why it is not known which runs are meant.
UNPLANNED, AMBIGUOUS = "not in the study", "several points of the study"


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


# At a level of confidence between 0 and 1.
Condition = Callable[[float], Finding]


def every(conditions: Iterable[Condition]) -> Condition:
    """False if one is, else unknown if one is, else true; with the first finding that shows it."""
    asked = list(conditions)
    return lambda level: _first([each(level) for each in asked], (False, None))


def some(conditions: Iterable[Condition]) -> Condition:
    """True if one is, else unknown if one is, else false; with the first finding that shows it."""
    asked = list(conditions)
    return lambda level: _first([each(1 - (1 - level) / len(asked)) for each in asked], (True, None))


def _first(found: Sequence[Finding], order: Sequence[bool | None]) -> Finding:
    shows = next((each for truth in order for each in found if each.truth is truth), found[0])
    return replace(shows, readings=tuple(dict.fromkeys(one for each in found for one in each.readings)))


@dataclass(frozen=True)
class Reading:
    """What a reader came to.

    estimate: None if there is no number; without ends if there is no interval. at: the same with the interval of another
    level. fault: why the reading decides nothing. absent: whether something has not been measured. planned: the runs asked
    for. runs: those it was read from.
    """

    name: str
    claim: Claim = field(repr=False, compare=False)
    estimate: Estimate | None = None
    at: Callable[[float], Estimate | None] | None = field(default=None, repr=False, compare=False)
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
        return f"{self.name} {found.value:.4g} ({self.fault or f'{found.low:.4g} to {found.high:.4g}'})"

    def below(self, bound: str) -> Condition:
        """Whether the whole interval is below a threshold, or below a range."""
        return self._compared(bound, lambda low, high, least, most: high < least)

    def above(self, bound: str | Reading) -> Condition:
        """Whether the whole interval is above a threshold, above a range, or above another reading's interval."""
        return self._compared(bound, lambda low, high, least, most: low > most)

    def at_most(self, bound: str) -> Condition:
        """Whether no part of the interval is above a threshold."""
        return self._compared(bound, lambda low, high, least, most: high <= least)

    def at_least(self, bound: str) -> Condition:
        """Whether no part of the interval is below a threshold."""
        return self._compared(bound, lambda low, high, least, most: low >= most)

    def within(self, bound: str) -> Condition:
        """Whether the whole interval is in a range."""
        return self._compared(bound, lambda low, high, least, most: least <= low and high <= most)

    def _compared(
        self, bound: str | Reading, holds: Callable[[float, float, float, float], bool]
    ) -> Condition:
        about = (self,) if isinstance(bound, str) else (self, bound)
        unknown = next((each for each in reversed(about) if each.fault), None)

        def condition(level: float) -> Finding:
            if unknown:
                return Finding(None, unknown, about)
            limits = self.claim.limits(bound) if isinstance(bound, str) else bound.ends(level)
            return Finding(holds(*self.ends(level), *limits), self, about)

        return condition

    def ends(self, level: float) -> tuple[float, float]:
        """The ends of the interval, in a reading without a fault."""
        found = self.estimate if self.at is None or level == LEVEL else self.at(level)
        assert found is not None and found.low is not None and found.high is not None
        return found.low, found.high


def planned(config: Config, studies: Collection[str], wanted: Filter) -> list[Run]:
    """The runs of these studies that pass a filter, in the studies' order."""
    runs = [run for study in config.studies if study.name in studies for run in study.runs]
    passing = (run for run in runs if all(axis_of(config, run, name) == wanted[name] for name in wanted))
    return list(dict.fromkeys(passing))


def rows_of(collected: Collected, runs: Collection[Run]) -> list[Row]:
    """The rows of runs.csv of these runs."""
    groups = (collected.points.get(point, ()) for point in dict.fromkeys(map(point_of, runs)))
    return [row for group in groups for row in group if Run.of(row) in runs]


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
        found = {axis_of(self.collected.config, run, name) for run in self._planned(among)}
        known = values or sorted(found, key=lambda value: (isinstance(value, str), value)) or ["?"]
        comma = ", " * bool(self.group)
        return [
            replace(self.of(**{name: value}), group=f"{self.group}{comma}{name} {value}") for value in known
        ]

    def ratio(self, name: str, quantity: Quantity, of: Filter, over: Filter) -> Reading:
        """`of` over `over`, paired by seed."""

        def estimate(level: float, of: Mapping[int, float], over: Mapping[int, float]) -> Estimate | None:
            if str(quantity).startswith(UNTIMED):
                ratios = [of[seed] / over[seed] for seed in of if over[seed] > 0]
                return metrics.over_seeds(ratios, level) if ratios else None
            return self._times(level, of, over)

        return self._read(name, quantity, estimate, of, over)

    def efficiency(self, name: str, quantity: Quantity, of: Filter, over: Filter) -> Reading:
        """The ratio, divided by how many times as many workers `over` has."""
        found = self.ratio(name, quantity, of, over)
        at = found.at
        if found.estimate is None or at is None:
            return found
        one, more = (workers(run.layout) for run in found.runs[:2])

        def estimate(level: float) -> Estimate | None:
            ratio = at(level)
            return ratio and ratio.times(one / more)

        return replace(found, estimate=estimate(LEVEL), at=estimate)

    def difference(self, name: str, of: Filter, over: Filter) -> Reading:
        """`of` minus `over` in the test's headline metric, paired by seed and sample."""

        def estimate(level: float, of: Mapping[int, Record], over: Mapping[int, Record]) -> Estimate | None:
            workload = str(next(iter(of.values())).run["workload"])
            metric = self.collected.config.family(workload).headline
            one, two = (metrics.scored(side.values(), metric) for side in (of, over))
            return metrics.difference(one, two, metric, level)

        return self._read(name, TESTED, estimate, of, over)

    def value(self, name: str, quantity: Quantity) -> Reading:
        """What is typical of the seeds."""

        def estimate(level: float, values: Mapping[int, float]) -> Estimate | None:
            if str(quantity).startswith(UNTIMED) or min(values.values()) <= 0:
                return metrics.over_seeds([*values.values()], level)
            return self._times(level, values, dict.fromkeys(values, 1.0))

        return self._read(name, quantity, estimate, {})

    def losses(self, name: str, of: Filter, over: Filter) -> Reading:
        """The largest relative difference of the first 20 losses in a pair of one seed; every pair must agree, so no mean.

        Its interval is the range of all pairs at every level.
        """

        def estimate(level: float, of: Any, over: Any) -> Estimate:
            apart, few = [parity.difference(of[seed], over[seed]) for seed in of], len(of) < FEWEST
            return Estimate(max(apart), None if few else min(apart), None if few else max(apart), len(apart))

        return self._read(name, LOSSES, estimate, of, over)

    def _times(self, level: float, of: Mapping[int, float], over: Mapping[int, float]) -> Estimate | None:
        """The ratio of the typical run, as every ratio of the results folder is estimated."""
        found = comparison.paired(of, over, self.collected.times.least)
        if found is None or found.low is None or level == LEVEL:
            return found
        low, high = verdicts.widened(found, level)
        return replace(found, low=low, high=high)

    def _planned(self, side: Filter) -> list[Run]:
        studies = [study.rpartition("#")[2] for study in self.claim.studies]
        return planned(self.collected.config, studies, {**self.wanted, **side})

    def _read(
        self, name: str, quantity: Quantity, estimate: Callable[..., Estimate | None], *sides: Filter
    ) -> Reading:
        """estimate: from a level and the amounts of each side, by seeds that all sides have; None without a number."""
        runs = [self._planned(side) for side in sides]
        label = f"{name} ({self.group})" if self.group else name
        blank = Reading(label, self.claim, planned=tuple(itertools.chain(*runs)))
        tested = str(quantity).startswith(UNTIMED)
        found = [self._usable(each, tested) for each in runs]
        faults = [(why, side) for (_, why), side in zip(found, sides, strict=True) if why]
        if faults:
            # What nobody has planned will not come.
            why, side = max(faults, key=lambda fault: fault[0] == UNPLANNED)
            words = ", ".join(f"{axis} {value}" for axis, value in side.items())
            return replace(blank, fault=f"{words} {why}".strip(), absent=not why.startswith(AMBIGUOUS))
        rows = [[*of_side.values()] for of_side, _ in found]
        keys = (comparability.quality(row) for row in itertools.chain(*rows) if tested)
        if why := comparability.mismatch(keys) if tested else comparison.mismatch(rows[0], rows[-1]):
            return replace(blank, fault=why)
        known = [
            {
                seed: amount
                for seed, row in of_side.items()
                if (amount := self._amount(quantity, row)) is not None
            }
            for of_side, _ in found
        ]
        seeds = sorted(set[int].intersection(*map(set, known)))
        amounts = [{seed: of_side[seed] for seed in seeds} for of_side in known]

        def at(level: float) -> Estimate | None:
            found = estimate(level, *amounts)
            return found and self._certain(quantity, found)

        estimated = at(LEVEL) if seeds else None
        if estimated is None:
            both = " on both sides" * (len(sides) > 1)
            return replace(blank, fault=f"no seed has {quantity}{both}", absent=True)
        pairs = [tuple(Run.of(of_side[seed]) for of_side, _ in found) for seed in seeds]
        fault, chosen = self._fault(estimated, pairs), tuple(itertools.chain(*pairs))
        return replace(blank, estimate=estimated, at=at, fault=fault, runs=chosen)

    def _usable(self, runs: Collection[Run], tested: bool) -> tuple[dict[int, Row], str]:
        """The rows of the usable ones of the planned runs of one point, by seed; or none of them and the reason.

        tested: whether results of a test are read; all else needs a quiet host.
        """
        if not runs:
            return {}, UNPLANNED
        if len({point_of(run) for run in runs}) > 1:
            first, *_, last = runs
            return {}, f"{AMBIGUOUS}, such as {first.name} and {last.name}"
        rows, states = rows_of(self.collected, runs), self.collected.why
        if not rows:
            return {}, next((states[run] for run in runs if run in states), "measured on another host")
        found, flag = (
            usable(rows) if not tested else ([row for row in rows if row["status"] == "completed"], "")
        )
        if not found or flag:
            # A run that was completed has no time without a steady step.
            faults = {row["status"].replace("completed", "no steady step") for row in rows}
            return {}, flag or f"no usable run ({', '.join(sorted(faults))})"
        if mostly_failed(rows):
            return {}, "most seeds failed, and the rest are a choice"
        kept = [row for row in found if not self.own_cores or row["shared_cores"] is False]
        shared = "shared" if found[0]["shared_cores"] else "perhaps shared"
        return {row["seed"]: row for row in kept}, "" if kept else f"no run with cores of its own ({shared})"

    def _certain(self, quantity: Quantity, found: Estimate) -> Estimate:
        """The estimate with its value as both ends, if seeds are equal because chance has no part in them.

        So it is with what simulators are like, and with the time of spans that no run enters.
        """
        without_chance = found.value == 0 if isinstance(quantity, Spans) else quantity in OF_SIMULATORS
        if found.low is not None or found.n < FEWEST or not without_chance:
            return found
        return replace(found, low=found.value, high=found.value)

    def _fault(self, estimate: Estimate, pairs: Sequence[Sequence[Run]]) -> str:
        """Why an estimate from these runs decides nothing."""
        if estimate.n < FEWEST:
            return f"{estimate.n} seed{'s' * (estimate.n > 1)}; an interval needs {FEWEST}"
        if estimate.low is None:
            return "all seeds are equal, so there is no interval"
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
