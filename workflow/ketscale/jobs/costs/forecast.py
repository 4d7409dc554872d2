"""What runs will cost, from the records of others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

from threadpoolctl import threadpool_limits

from ketscale.config import Settings
from ketscale.grid import BACKENDS, Run
from ketscale.jobs.costs import records
from ketscale.jobs.costs.law import NOTHING, Interval, Law
from ketscale.jobs.costs.records import Case, Sample, case
from ketscale.measure.form import Record

# The range of so many runs that stopped early holds 90 % of further ones.
_ENOUGH = 19
# By what factor the time of a run falls where one process trains 32 runs and not one: half of what it would, as a
# logarithm, if nothing were done twice. Records tell by how much it differs from this.
_SHARED = 32**-0.5


@dataclass(frozen=True)
class Forecast:
    """What a run will cost, with 90 % intervals.

    seconds: its own time; in a cohort, its share of the time of all. memory_bytes: host memory of the largest rank, all
    members included. beyond: whether it is outside the range of the records. at_most: it may stop early, and no record says
    when, so `seconds` are those of all epochs. members: how many runs one process trains together, this one included.
    others_s: what the others take there.
    """

    run: Run
    seconds: Interval
    memory_bytes: Interval
    beyond: bool
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
class Asked:
    """A run, how many one process trains together with it included, and the step from which it goes on."""

    settings: Settings
    members: int = 1
    done: int = 0


class Costs:
    """What samples tell of the costs of other runs.

    records: how many there are. machines: the hardware that runs are forecast for, which most samples of a kind of device
    are of.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        samples = list(samples)
        points: dict[str, Case] = {}
        costs: dict[str, dict[str, list[float]]] = {}
        for one in samples:
            points.setdefault(one.case.point, one.case)
            for name, cost in one.costs.items():
                of = costs.setdefault(name, {}).setdefault(one.case.point, [])
                of.append(cost / _shared(name, one.case))
        # On a shared machine, threads that wait for each other cost far more than such matrices take.
        with threadpool_limits(1):
            self._laws = {
                name: Law([points[point] for point in of], [*of.values()]) for name, of in costs.items()
            }
        known, named = dict[object, list[Case]](), dict[object, list[Case]]()
        for at in points.values():
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
        self._machine = {device: most for (device, most), _ in reversed(used.most_common())}
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

    def beyond(self, case: Case) -> bool:
        """Whether a number of a case is outside the range that records of such runs have."""
        return not _inside(case, self._named.get(_names(case), {}), 0.0)

    def costs(self, cases: Sequence[Case]) -> list[dict[str, Interval]]:
        """The costs of cases of which `knows` holds, by the names of `Sample.costs`; one that no record has is missing."""
        found: list[dict[str, Interval]] = [{} for _ in cases]
        with threadpool_limits(1):
            for name, law in self._laws.items() if cases else ():
                for at, one, interval in zip(found, cases, law.intervals(cases), strict=True):
                    at[name] = interval.times(_shared(name, one))
        return found

    def forecast(self, asked: Iterable[Asked]) -> list[Forecast | None]:
        """The forecasts of runs; None where nothing is known."""
        asked = list(asked)
        cases = list(map(self._case, asked))
        costs = iter(self.costs([one for one in cases if one]))
        told = zip(asked, cases, strict=True)
        return [self._forecast(one, at, next(costs)) if at else None for one, at in told]

    def _case(self, asked: Asked) -> Case | None:
        """The case of a run; None if nothing is known of it."""
        settings = asked.settings
        machine = self._machine.get(BACKENDS[settings.run.backend].device)
        at = machine and case(settings.content, settings.sizes, machine, asked.members)
        return at if at and self.knows(at) and self._steps(settings, at) else None

    def _forecast(self, asked: Asked, at: Case, costs: Mapping[str, Interval]) -> Forecast:
        settings, protocol = asked.settings, asked.settings.protocol
        steps, (shares, at_most) = self._steps(settings, at) or 0, self._shares(settings, at)
        left = [max(0.0, steps * share - asked.done) for share in shares]
        least, middle, most = (whole(costs, each, (protocol.epochs or 0) * each / steps) for each in left)
        seconds = Interval(middle.middle, least.low, most.high)
        if protocol.limit_s is not None:
            pace_s = costs["pace_s"]
            limit_s = max(0.0, protocol.limit_s - asked.done * pace_s.middle)
            longest = costs["start_s"] + Interval(max(limit_s, pace_s.middle), limit_s, limit_s + pace_s.high)
            seconds = Interval(*map(min, astuple(seconds), astuple(longest)))
        return Forecast(settings.run, seconds, costs["memory_bytes"], self.beyond(at), at_most, asked.members)

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
