"""What is read of a claim's runs: a number with its interval, or why there is none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.claims.ledger import Asked, Claim, Filter, Region, Spans
from ketscale.analysis import comparability, comparison, metrics
from ketscale.analysis.comparison import Collected
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.analysis.points import Row, axis_of, mostly_failed, point_of, usable
from ketscale.analysis.verdicts import widened
from ketscale.grid import Run
from ketscale.measure import parity
from ketscale.measure.form import Record, Timing

# Measured by the test, not by the clock, so that other work on the host changes nothing; and of these the test itself.
UNTIMED, TESTED = "test_", "test_result"
# Properties of a simulator on the test split alone, so that chance has no part in them.
OF_SIMULATORS = {"test_simulator_error", "test_negativity"}
UNPLANNED, UNRECORDED = "not in the study", "not recorded"


@dataclass(frozen=True)
class Reading:
    """What was read.

    estimate: None if there is no number; without ends if there is no interval. fault: why it decides nothing. absent:
    whether something has not been measured. runs: those it was read from.
    """

    name: str
    estimate: Estimate | None = None
    fault: str = ""
    absent: bool = False
    runs: tuple[Run, ...] = ()

    @property
    def words(self) -> str:
        """The reading in words, such as 'speedup (qubits 6) 1.8 (1.7 to 1.9)'."""
        found = self.estimate
        if found is None:
            return f"{self.name}: {self.fault}"
        return f"{self.name} {found.value:.4g} ({self.fault or f'{found.low:.4g} to {found.high:.4g}'})"

    def lies(self, region: Region, level: float) -> bool | None:
        """Whether the whole interval at a level lies in a region; None if that is unknown."""
        if self.fault or self.estimate is None:
            return None
        (low, high), (least, most) = self._ends(self.estimate, level), region
        return (least is None or low > least) and (most is None or high < most)

    def _ends(self, found: Estimate, level: float) -> tuple[float, float]:
        assert found.low is not None and found.high is not None
        if level == LEVEL or found.low == found.high:
            return found.low, found.high
        if found.low > 0:
            return widened(found, level)
        low, high = widened(found.mapped(math.exp), level)
        return math.log(low), math.log(high)


def groups(claim: Claim, asked: Asked, collected: Collected) -> Iterator[tuple[str, Filter]]:
    """The name of each reading that is asked for, and what its runs have."""
    runs, config = _planned(claim, collected, asked.where), collected.config
    found = [[axis_of(config, run, axis) for run in runs] for axis in asked.each]
    values = [given or sorted(set(one)) for given, one in zip(asked.each.values(), found, strict=True)]
    for chosen in itertools.product(*values):
        named = dict(zip(asked.each, chosen, strict=True))
        words = ", ".join(f"{axis} {value}" for axis, value in named.items())
        yield f"{asked.name} ({words})" if words else asked.name, {**asked.where, **named}


def readings(claim: Claim, collected: Collected) -> list[Reading]:
    """All that a claim's rule reads of a results folder."""
    return [
        replace(_measured(claim, asked, collected, where), name=name)
        for asked in claim.readings
        for name, where in groups(claim, asked, collected)
    ]


def _planned(claim: Claim, collected: Collected, wanted: Filter) -> list[Run]:
    """The runs of the claim's studies that pass a filter."""
    names, config = [study.rpartition("#")[2] for study in claim.studies], collected.config
    runs = dict.fromkeys(run for study in config.studies if study.name in names for run in study.runs)
    return [run for run in runs if all(axis_of(config, run, axis) == value for axis, value in wanted.items())]


def _measured(claim: Claim, asked: Asked, collected: Collected, where: Filter) -> Reading:
    tested, sides = str(asked.quantity).startswith(UNTIMED), []
    for side in (asked.of, *([] if asked.over is None else [asked.over])):
        rows, fault = _usable(_planned(claim, collected, {**where, **side}), collected, tested)
        kept = {
            seed: row for seed, row in rows.items() if not asked.own_cores or row["shared_cores"] is False
        }
        if not kept:
            words = ", ".join(f"{axis} {value}" for axis, value in side.items())
            return Reading(
                "", fault=f"{words} {fault or 'no run with cores of its own'}".strip(), absent=True
            )
        sides.append(kept)
    if tested:
        both = itertools.chain(*(side.values() for side in sides))
        mismatch = comparability.mismatch(comparability.quality(row) for row in both)
    else:
        mismatch = comparison.mismatch([*sides[0].values()], [*sides[-1].values()])
    if mismatch:
        return Reading("", fault=mismatch)
    known = [{seed: _amount(asked, collected, row) for seed, row in side.items()} for side in sides]
    seeds = [seed for seed in sorted(sides[0]) if all(side.get(seed) is not None for side in known)]
    found = (
        _estimate(asked, collected, [{seed: side[seed] for seed in seeds} for side in known])
        if seeds
        else None
    )
    if found is None:
        return Reading("", fault="no seed has it on every side", absent=True)
    # Equal seeds are certain where chance has no part: in what a simulator is like, and in spans that no run enters.
    certain = found.value == 0 if isinstance(asked.quantity, Spans) else asked.quantity in OF_SIMULATORS
    if found.low is None and found.n >= FEWEST and certain:
        found = replace(found, low=found.value, high=found.value)
    pairs = [[Run.of(side[seed]) for side in sides] for seed in seeds]
    return Reading("", found, _fault(claim, found, collected, pairs), runs=tuple(itertools.chain(*pairs)))


def _estimate(asked: Asked, collected: Collected, sides: Sequence[Mapping[int, Any]]) -> Estimate | None:
    """From the amounts of each side, by the seeds that all sides have; None without a number."""
    of, over, least = sides[0], sides[-1], collected.times.least
    if asked.quantity == TESTED:
        record: Record = next(iter(of.values()))
        metric = collected.config.family(str(record.run["workload"])).headline
        one, two = (metrics.scored(side.values(), metric) for side in (of, over))
        return metrics.difference(one, two, metric)
    if asked.over is None:
        over = dict.fromkeys(of, 1.0)
    if str(asked.quantity).startswith(UNTIMED) or (asked.over is None and min(of.values()) <= 0):
        ratios = [of[seed] / over[seed] for seed in of if over[seed] > 0]
        return metrics.over_seeds(ratios) if ratios else None
    found = comparison.paired(of, over, least)
    return found and found.times(asked.times)


def _usable(runs: Sequence[Run], collected: Collected, tested: bool) -> tuple[dict[int, Row], str]:
    """The usable rows of the runs of one point, by seed; or none, and the reason. tested: no quiet host is needed."""
    if len(points := {point_of(run) for run in runs}) != 1:
        return {}, "several points of the study" if points else UNPLANNED
    rows = [row for row in collected.points.get(points.pop(), ()) if Run.of(row) in runs]
    if not rows:
        return {}, next((collected.why[run] for run in runs if run in collected.why), "missing")
    found, flag = ([row for row in rows if row["status"] == "completed"], "") if tested else usable(rows)
    if mostly_failed(rows):
        return {}, "most seeds failed, and the rest are a choice"
    if not found or flag:
        return {}, flag or f"no usable run ({', '.join(sorted({row['status'] for row in rows}))})"
    return {row["seed"]: row for row in found}, ""


def _fault(claim: Claim, estimate: Estimate, collected: Collected, pairs: Sequence[Sequence[Run]]) -> str:
    """Why an estimate from these runs decides nothing."""
    if estimate.n < FEWEST:
        return f"{estimate.n} seed{'s' * (estimate.n > 1)}; an interval needs {FEWEST}"
    if estimate.low is None:
        return "all seeds are equal, so there is no interval"
    if claim.same_losses is None or len(pairs[0]) < 2:
        return ""
    losses = [[collected.records[run].losses for run in pair] for pair in pairs]
    apart = max(parity.difference(one, two) for one, two in losses)
    return f"its first losses differ by {apart:.1e}, over {claim.same_losses:.1g}" * (
        apart > claim.same_losses
    )


def _amount(asked: Asked, collected: Collected, row: Row) -> Any:
    """What a run has of a quantity; None if it lacks it."""
    record = collected.records[Run.of(row)]
    if isinstance(asked.quantity, Spans):
        return seconds(asked.quantity, record.timing)
    # Without runs of the family, there is no column of its metrics.
    return record if asked.quantity == TESTED else row.get(asked.quantity)


def seconds(wanted: Spans, timing: Timing) -> float | None:
    """Seconds of a sampled step in spans, or what they are over; None if no step was sampled."""
    spans = {name: each.median_s or 0.0 for name, each in timing.spans.items() if not name.endswith(".total")}
    step = timing.sampled_step.median_s
    if not spans or not step:
        return None
    # A span that a run never enters takes no time.
    found = float(sum(spans.get(name, 0.0) for name in wanted.spans))
    others = max((value for name, value in spans.items() if name not in wanted.spans), default=None)
    whole = {"": 1.0, "the step": step, "the largest other": others}[wanted.over]
    return found / whole if whole else None
