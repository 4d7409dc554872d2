"""What runs will cost, from the records of others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from threadpoolctl import threadpool_limits

from ketscale.config import Protocol, Settings
from ketscale.grid import BACKENDS, Run, canonical
from ketscale.jobs.costs import records
from ketscale.jobs.costs.law import NOTHING, Interval, Law
from ketscale.jobs.costs.records import Case, Sample, case
from ketscale.measure.form import Record

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
    those of all epochs. members: how many runs one process trains together, this one included. others_s: what the others take
    there.
    """

    run: Run
    seconds: Interval
    step_s: Interval
    start_s: Interval
    memory_bytes: Interval
    place: Place
    at_most: bool = False
    members: int = 1
    others_s: Interval = NOTHING

    @property
    def wall_s(self) -> Interval:
        """The time of the process that trains it."""
        return self.seconds + self.others_s

    @property
    def node_hours(self) -> Interval:
        """Its time on all of its nodes."""
        return self.seconds.times(self.run.nodes / 3600)


@dataclass(frozen=True)
class Parts:
    """What the cost of a run is made of: the costs of `Sample`, its steps, and the share of them that it takes, at least, in
    the middle and at most. For the rest see `Forecast`.
    """

    protocol: Protocol
    costs: Mapping[str, Interval]
    steps: int
    shares: tuple[float, float, float]
    place: Place
    at_most: bool
    members: int

    def of(self, run: Run, done: int = 0) -> Forecast:
        """The forecast of a run that goes on after so many steps. Those with which it trains are taken for like it."""
        costs, seconds = self.costs, self._seconds(done)
        # Steps of a cohort are no run's own.
        step_s = costs["pace_s" if self.members > 1 or "step_s" not in costs else "step_s"]
        return Forecast(
            run, seconds, step_s, costs["start_s"].times(self.members), costs["memory_bytes"], self.place, self.at_most,
            self.members, seconds.times(self.members - 1),
        )  # fmt: skip

    def _seconds(self, done: int) -> Interval:
        """The seconds that are left after so many steps."""
        low, middle, high = (self._whole(self.steps * each, done) for each in self.shares)
        seconds = Interval(middle.middle, low.low, high.high)
        if (limit_s := self.protocol.limit_s) is None:
            return seconds
        pace_s = self.costs["pace_s"]
        limit_s = max(0.0, limit_s - done * pace_s.middle)
        most = self.costs["start_s"] + Interval(max(limit_s, pace_s.middle), limit_s, limit_s + pace_s.high)
        return Interval(*map(min, astuple(seconds), astuple(most)))

    def _whole(self, steps: float, done: int) -> Interval:
        left = max(0.0, steps - done)
        return whole(self.costs, left, (self.protocol.epochs or 0) * left / self.steps)


class Costs:
    """What samples tell of the costs of other runs.

    records: how many there are. machines: the hardware that runs are forecast for; by default that which most samples of
    a kind of device are of.
    """

    def __init__(self, samples: Iterable[Sample], machine: str | None = None) -> None:
        samples = list(samples)
        self._points: dict[str, Case] = {}
        costs: dict[str, dict[str, list[float]]] = {}
        for one in samples:
            self._points.setdefault(one.case.point, one.case)
            for name, cost in one.costs.items():
                of = costs.setdefault(name, {}).setdefault(one.case.point, [])
                of.append(cost / _shared(name, one.case))
        # On a shared machine, threads that wait for each other cost far more than such matrices take.
        with threadpool_limits(1):
            self._laws = {
                name: Law([self._points[point] for point in of], [*of.values()]) for name, of in costs.items()
            }
        known, named = dict[object, list[Case]](), dict[object, list[Case]]()
        for at in self._points.values():
            known.setdefault(at.known, []).append(at)
            named.setdefault(_names(at), []).append(at)
        self._known, self._named = ({key: _ranges(of) for key, of in one.items()} for one in (known, named))
        # By workload and optimiser: the steps of an epoch, and the most samples that these may be. By model, workload and
        # planned epochs: when runs that may stop early did.
        self._epochs: dict[object, tuple[int, int]] = {}
        self._ended: dict[object, list[int]] = {}
        for one in samples:
            names, most = one.case.names, one.steps_per_epoch * one.batch
            like = names["workload"], names["optimiser"]
            steps, least = self._epochs.get(like, (one.steps_per_epoch, most))
            self._epochs[like] = steps, min(least, most)
            if one.epochs and one.stops_early:
                self._ended.setdefault((names["model"], names["workload"], one.planned), []).append(
                    one.epochs
                )
        used = Counter(
            (BACKENDS[one.case.names["backend"]].device, one.case.names["machine"]) for one in samples
        )
        self._machine = {device: machine or most for (device, most), _ in reversed(used.most_common())}
        self.records, self.machines = len(samples), tuple(dict.fromkeys(self._machine.values()))

    @classmethod
    def of(cls, *folders: Path, known: Mapping[Path, Record] | None = None) -> Costs:
        """From the records of results folders. known: those that have been read, by their paths."""
        return cls(records.below(folders, known or {}))

    def knows(self, case: Case) -> bool:
        """Whether records have the case's model, simulator and backend, and numbers that are near enough.

        A case is too far if a number is more than one grid of a study beyond them (see `records`): eight times the batch,
        four times the ranks, or four qubits.
        """
        return _inside(case, self._known.get(case.known, {}), 1.0)

    def place(self, case: Case) -> Place:
        """The place of a case among the records."""
        if case.point in self._points:
            return "repeat"
        return "within" if _inside(case, self._named.get(_names(case), {}), 0.0) else "beyond"

    def costs(self, cases: Sequence[Case]) -> list[dict[str, Interval]]:
        """The costs of cases of which `knows` holds, by the names of `Sample.costs`; one that no record has is missing."""
        found: list[dict[str, Interval]] = [{} for _ in cases]
        beyond = [self.place(one) == "beyond" for one in cases]
        with threadpool_limits(1):
            for name, law in self._laws.items() if cases else ():
                for at, one, interval in zip(found, cases, law.intervals(cases, beyond), strict=True):
                    at[name] = interval.times(_shared(name, one))
        return found

    def forecast(self, runs: Iterable[Settings]) -> dict[Run, Forecast]:
        """The forecasts of all runs of which anything is known, each as if it trains alone."""
        asked = {one.run: one for one in runs}
        known = self.parts((one, 1) for one in asked.values())
        return {run: made.of(run) for run, made in zip(asked, known, strict=True) if made}

    def parts(self, asked: Iterable[tuple[Settings, int]]) -> list[Parts | None]:
        """What the costs of runs are made of, each in a cohort of so many; None where nothing is known."""
        # Runs that differ in their seeds cost the same.
        keys, alike = list[object](), dict[object, tuple[Settings, int]]()
        for one, members in asked:
            keys.append((one.run.without("seed"), canonical({**one.content, "run": None}), members))
            alike.setdefault(keys[-1], (one, members))
        known: dict[object, tuple[Case, int]] = {}
        for key, (one, members) in alike.items():
            machine = self._machine.get(BACKENDS[one.run.backend].device)
            at = machine and case(one.content, one.sizes, machine, members)
            if at and self.knows(at) and (steps := self._steps(one, at)):
                known[key] = at, steps
        made: dict[object, Parts] = {}
        for (key, (at, steps)), costs in zip(
            known.items(), self.costs([at for at, _ in known.values()]), strict=True
        ):
            one, members = alike[key]
            shares, at_most = self._shares(one, at)
            made[key] = Parts(one.protocol, costs, steps, shares, self.place(at), at_most, members)
        return [made.get(key) for key in keys]

    def _steps(self, settings: Settings, at: Case) -> int | None:
        """The steps of a whole run; None if no record of the same workload and optimiser tells."""
        protocol = settings.protocol
        if protocol.epochs is None:
            return protocol.steps
        like = self._epochs.get((at.names["workload"], at.names["optimiser"]))
        if like is None:
            return None
        steps, samples = like
        if settings.sampler != "shuffled" or protocol.optimiser == "l-bfgs":
            return protocol.epochs * steps
        # A batch covers some samples at most, so that the least of these bounds is the closest.
        return protocol.epochs * math.ceil(samples / settings.run.batch)

    def _shares(self, settings: Settings, at: Case) -> tuple[tuple[float, float, float], bool]:
        """The share of its epochs that a run takes, at least, in the middle and at most; and whether no record tells."""
        stopping, epochs = settings.protocol.early_stopping, settings.protocol.epochs
        if stopping is None or epochs is None:
            return (1.0, 1.0, 1.0), False
        of = (at.names["model"], at.names["workload"], epochs)
        ended = sorted(each / epochs for each in self._ended.get(of, ()))
        if len(ended) >= _ENOUGH:
            return (ended[0], median(ended), ended[-1]), False
        return (min(1.0, (stopping.patience + 1) / epochs, *ended), median(ended or [1.0]), 1.0), not ended


def whole(costs: Mapping[str, Interval], steps: float, epochs: float) -> Interval:
    """All seconds of a run of so many steps and epochs, whose parts err together."""
    spent = costs["start_s"] + costs["pace_s"].times(steps)
    return spent + costs["validation_s"].times(epochs) if "validation_s" in costs else spent


def _shared(name: str, case: Case) -> float:
    """What a cost is multiplied by in a cohort, before there are records. Memory is that of the process."""
    return 1.0 if name == "memory_bytes" else _SHARED ** case.numbers["members"]


def _names(case: Case) -> tuple[str, ...]:
    return tuple(case.names.values())


def _ranges(cases: Iterable[Case]) -> dict[str, tuple[float, float]]:
    """The least and the largest of each number of some cases."""
    found: dict[str, tuple[float, float]] = {}
    for one in cases:
        for name, number in one.numbers.items():
            least, most = found.get(name, (number, number))
            found[name] = min(least, number), max(most, number)
    return found


def _inside(case: Case, ranges: Mapping[str, tuple[float, float]], margin: float) -> bool:
    """Whether each number of a case is in its range, or no farther from it than a margin."""
    return all(
        name in ranges and ranges[name][0] - margin <= number <= ranges[name][1] + margin
        for name, number in case.numbers.items()
    )
