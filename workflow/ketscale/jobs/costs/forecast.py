"""What runs will cost, from the records of others."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from threadpoolctl import threadpool_limits

from ketscale.config import Config, Settings
from ketscale.grid import BACKENDS, Run, canonical
from ketscale.jobs import choice, cohorts
from ketscale.jobs.costs import records
from ketscale.jobs.costs.interval import Interval, between
from ketscale.jobs.costs.law import Law
from ketscale.jobs.costs.records import Case, Sample, case
from ketscale.jobs.slurm import queue

# repeat: a record differs only in the seed. within: records of such runs have smaller and larger values of every number,
# or equal ones. beyond: the others.
Place = Literal["repeat", "within", "beyond"]

# The range of so many runs that stopped early holds 90 % of further ones.
_ENOUGH = 19
# By what factor the time of a run falls where one process trains 32 runs and not one: half of what it would, as a
# logarithm, if nothing were done twice. Records tell by how much it differs from this.
_SHARED = 32**-0.5


@dataclass(frozen=True)
class Forecast:
    """What a run will cost, with 90 % intervals.

    seconds: its own time; in a cohort, its share of the time of all. step_s: a steady step; a share as well. start_s: of
    the process, which a further job of the run pays again. memory_bytes: host memory of the largest rank, all members
    included. place: where it is, seen from the records. at_most: it may stop early, and no record says when, so `seconds` are
    those of all epochs. members: how many runs one process trains together, this one included.
    """

    run: Run
    seconds: Interval
    step_s: Interval
    start_s: Interval
    memory_bytes: Interval
    place: Place
    at_most: bool = False
    members: int = 1

    @property
    def wall_s(self) -> Interval:
        """The time of the process that trains it."""
        return self.seconds.times(self.members)

    @property
    def node_hours(self) -> Interval:
        """Its time on all of its nodes."""
        return self.seconds.times(self.run.nodes / 3600)

    @property
    def whole(self) -> str:
        """Its time in words."""
        return f"{'at most ' * self.at_most}{between(self.seconds)}"


class Costs:
    """What samples tell of the costs of other runs.

    records: how many there are. machines: the hardware that runs are forecast for; by default that which most samples of
    a kind of device are of.
    """

    def __init__(self, samples: Iterable[Sample], machine: str | None = None) -> None:
        self._samples = list(samples)
        self._points: dict[str, Case] = {}
        costs: dict[str, dict[str, list[float]]] = {}
        for one in self._samples:
            self._points.setdefault(one.case.point, one.case)
            for name, cost in one.costs.items():
                of = costs.setdefault(name, {}).setdefault(one.case.point, [])
                of.append(cost / _shared(name, one.case))
        # On a shared machine, threads that wait for each other cost far more than such matrices take.
        with threadpool_limits(1):
            self._laws = {
                name: Law([self._points[point] for point in of], [*of.values()]) for name, of in costs.items()
            }
        used = Counter(
            (BACKENDS[one.case.names["backend"]].device, one.case.names["machine"]) for one in self._samples
        )
        self._machine = {device: machine or most for (device, most), _ in reversed(used.most_common())}
        self.records, self.machines = len(self._samples), tuple(dict.fromkeys(self._machine.values()))

    @classmethod
    def of(cls, *folders: Path) -> Costs:
        """From the records of results folders."""
        return cls(records.below(folders))

    def knows(self, case: Case) -> bool:
        """Whether records have the case's model, simulator and backend, and numbers that are near enough.

        A case is too far if a number is more than one grid of a study beyond them (see `records`): eight times the batch,
        four times the ranks, or four qubits.
        """
        return _inside(case, [one for one in self._points.values() if one.known == case.known], 1.0)

    def place(self, case: Case) -> Place:
        """The place of a case among the records."""
        if case.point in self._points:
            return "repeat"
        like = [one for one in self._points.values() if one.names == case.names]
        return "within" if _inside(case, like, 0.0) else "beyond"

    def costs(self, cases: Sequence[Case]) -> list[dict[str, Interval]]:
        """The costs of cases of which `knows` holds, by the names of `Sample.costs`; one that no record has is missing."""
        found: list[dict[str, Interval]] = [{} for _ in cases]
        beyond = [self.place(one) == "beyond" for one in cases]
        for name, law in self._laws.items() if cases else ():
            for at, one, interval in zip(found, cases, law.intervals(cases, beyond), strict=True):
                at[name] = interval.times(_shared(name, one))
        return found

    def forecast(
        self, runs: Iterable[Settings], together: Iterable[Sequence[Settings]] = ()
    ) -> dict[Run, Forecast]:
        """The forecasts of all runs of which anything is known.

        Args:
            together: those that one process trains, as `cohorts.plan` has them; the others train alone.
        """
        members = {one.run: len(cohort) for cohort in together for one in cohort}
        # Runs that differ in their seeds cost the same.
        alike: dict[object, list[Settings]] = {}
        for one in runs:
            content = canonical({**one.content, "run": None})
            alike.setdefault((one.run.without("seed"), content, members.get(one.run, 1)), []).append(one)
        known: list[tuple[list[Settings], Case, int]] = []
        for of in alike.values():
            machine = self._machine.get(BACKENDS[of[0].run.backend].device)
            at = machine and case(of[0].content, of[0].sizes, machine, members.get(of[0].run, 1))
            if at and self.knows(at) and (steps := self._steps(of[0], at)):
                known.append((of, at, steps))
        made = {}
        for (of, at, steps), costs in zip(known, self.costs([at for _, at, _ in known]), strict=True):
            protocol, count = of[0].protocol, members.get(of[0].run, 1)
            shares, at_most = self._shares(of[0], at)
            low, middle, high = (whole(costs, steps * each, (protocol.epochs or 0) * each) for each in shares)
            seconds = Interval(middle.middle, low.low, high.high)
            if (limit_s := protocol.limit_s) is not None:
                pace_s = costs["pace_s"]
                most = costs["start_s"] + Interval(
                    max(limit_s, pace_s.middle), limit_s, limit_s + pace_s.high
                )
                seconds = Interval(*map(min, astuple(seconds), astuple(most)))
            # Steps of a cohort are no run's own.
            step_s = costs["pace_s" if count > 1 or "step_s" not in costs else "step_s"]
            place, memory = self.place(at), costs["memory_bytes"]
            for one in of:
                made[one.run] = Forecast(
                    one.run, seconds, step_s, costs["start_s"].times(count), memory, place, at_most, count
                )
        return made

    def of_call(self, config: Config, runs: Collection[Run], results: Path) -> dict[Run, Forecast]:
        """The forecasts of runs that one call is to train, in the cohorts that it forms."""
        # Under SLURM, a job is a process of its own.
        cores = 1 if queue.available() else len(os.sched_getaffinity(0))
        every = map(config.settings, dict.fromkeys([*config.runs, *runs]))
        together = cohorts.plan(every, cores, needed=set(runs)) if config.cohorts else ()
        return self.forecast([choice.resolved(config.settings(run), results) for run in runs], together)

    def _steps(self, settings: Settings, at: Case) -> int | None:
        """The steps of a whole run; None if no record of the same workload and optimiser tells."""
        protocol = settings.protocol
        if protocol.epochs is None:
            return protocol.steps
        like = [one for one in self._samples if _same(one.case, at, "workload", "optimiser")]
        if not like:
            return None
        if settings.sampler != "shuffled" or protocol.optimiser == "l-bfgs":
            return protocol.epochs * like[0].steps_per_epoch
        # A batch covers some samples at most, so that the least of these bounds is the closest.
        return protocol.epochs * math.ceil(
            min(s.steps_per_epoch * s.batch for s in like) / settings.run.batch
        )

    def _shares(self, settings: Settings, at: Case) -> tuple[tuple[float, float, float], bool]:
        """The share of its epochs that a run takes, at least, in the middle and at most; and whether no record tells."""
        stopping, epochs = settings.protocol.early_stopping, settings.protocol.epochs
        if stopping is None or epochs is None:
            return (1.0, 1.0, 1.0), False
        ended = sorted(
            one.epochs / epochs
            for one in self._samples
            if one.epochs
            and one.stops_early
            and one.planned == epochs
            and _same(one.case, at, "model", "workload")
        )
        if len(ended) >= _ENOUGH:
            return (ended[0], median(ended), ended[-1]), False
        return (min(1.0, (stopping.patience + 1) / epochs, *ended), median(ended or [1.0]), 1.0), not ended


def missing(
    config: Config, runs: Collection[Run], root: Path, folders: Iterable[Path] = ()
) -> tuple[Costs, dict[Run, Forecast]]:
    """What records tell, and the forecasts of runs that a call is to train of a config below `root`.

    Args:
        folders: results folders whose records tell costs, beside the config's own.
    """
    costs = Costs.of(root / config.results, *folders)
    return costs, costs.of_call(config, runs, root / config.results)


def whole(costs: dict[str, Interval], steps: float, epochs: float) -> Interval:
    """All seconds of a run of so many steps and epochs, whose parts err together."""
    spent = costs["start_s"] + costs["pace_s"].times(steps)
    return spent + costs["validation_s"].times(epochs) if "validation_s" in costs else spent


def _shared(name: str, case: Case) -> float:
    """What a cost is multiplied by in a cohort, before there are records. Memory is that of the process."""
    return 1.0 if name == "memory_bytes" else _SHARED ** case.numbers["members"]


def _same(one: Case, other: Case, *names: str) -> bool:
    return all(one.names[name] == other.names[name] for name in names)


def _inside(case: Case, others: Sequence[Case], margin: float) -> bool:
    """Whether each number of a case is in the range that others have, or no farther from it than a margin."""
    ranges = {name: [one.numbers[name] for one in others if name in one.numbers] for name in case.numbers}
    return all(
        of and min(of) - margin <= case.numbers[name] <= max(of) + margin for name, of in ranges.items()
    )
