"""What runs will cost, from the records of others, and what those of a config do that have no result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import median

from threadpoolctl import threadpool_limits

from ketscale.config import Config, Settings
from ketscale.grid import BACKENDS, Run
from ketscale.jobs import choice
from ketscale.jobs.costs import records
from ketscale.jobs.costs.law import Interval, Law, total
from ketscale.jobs.costs.records import Case, Sample, case
from ketscale.measure.form import Record
from ketscale.words import counted, rounded


@dataclass(frozen=True)
class Forecast:
    """What a run will cost, with 90 % intervals.

    seconds: its own time, of several that one process trains together its share, as records have it. memory_bytes: host
    memory of the largest rank.
    """

    run: Run
    seconds: Interval
    memory_bytes: Interval

    @property
    def node_hours(self) -> Interval:
        """Its time on all of its nodes."""
        return self.seconds.times(self.run.nodes / 3600)


class Costs:
    """What samples tell of the costs of other runs.

    records: how many there are. machines: the hardware that runs are forecast for, which most samples of a kind of device
    are of.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        samples = list(samples)
        points = {one.case.point: one.case for one in samples}
        costs: dict[str, dict[str, list[float]]] = {}
        # By workload and optimiser: the steps of an epoch, and the most samples that these may be. By model, workload and
        # planned epochs: the share of these that runs took which may stop early.
        self._epochs: dict[object, tuple[int, int]] = {}
        self._shares: dict[object, list[float]] = {}
        for one in samples:
            for name, cost in one.costs.items():
                costs.setdefault(name, {}).setdefault(one.case.point, []).append(cost)
            names, most = one.case.names, one.steps_per_epoch * one.batch
            like = names["workload"], names["optimiser"]
            steps, least = self._epochs.get(like, (one.steps_per_epoch, most))
            self._epochs[like] = steps, min(least, most)
            if one.epochs and one.planned:
                key = names["model"], names["workload"], one.planned
                self._shares.setdefault(key, []).append(one.epochs / one.planned)
        # On a shared machine, threads that wait for each other cost far more than such matrices take.
        with threadpool_limits(1):
            self._laws = {
                name: Law([points[point] for point in of], [*of.values()]) for name, of in costs.items()
            }
        # The least and the largest of each number.
        self._ranges: dict[object, dict[str, tuple[float, float]]] = {}
        for at in points.values():
            ranges = self._ranges.setdefault(at.known, {})
            for name, number in at.numbers.items():
                low, high = ranges.get(name, (number, number))
                ranges[name] = min(low, number), max(high, number)
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
        ranges = self._ranges.get(case.known, {})
        return all(
            name in ranges and ranges[name][0] - 1 <= number <= ranges[name][1] + 1
            for name, number in case.numbers.items()
        )

    def costs(self, case: Case) -> dict[str, Interval]:
        """The costs of a case of which `knows` holds, by the names of `Sample.costs`; one that no record has is missing."""
        return {name: law.interval(case) for name, law in self._laws.items()}

    def forecast(self, settings: Settings) -> Forecast | None:
        """The forecast of a whole run; None if nothing is known of it."""
        run, protocol = settings.run, settings.protocol
        machine = self._machine.get(BACKENDS[run.backend].device)
        if machine is None:
            return None
        at = case(settings.content, settings.sizes, machine)
        steps = self._steps(settings, at)
        if not steps or not self.knows(at):
            return None
        costs = self.costs(at)
        least, middle, most = (
            whole(costs, steps * share, (protocol.epochs or 0) * share)
            for share in self._shares_of(settings, at)
        )
        seconds = Interval(middle.middle, least.low, most.high)
        if protocol.limit_s is not None:
            # It ends with the step in which its time is over.
            longest = costs["start_s"] + costs["pace_s"] + Interval(*[protocol.limit_s] * 3)
            seconds = Interval(*map(min, astuple(seconds), astuple(longest)))
        return Forecast(run, seconds, costs["memory_bytes"])

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

    def _shares_of(self, settings: Settings, at: Case) -> tuple[float, float, float]:
        """The share of its epochs that a run takes, at least, in the middle and at most: all, until a record tells."""
        stopping, epochs = settings.protocol.early_stopping, settings.protocol.epochs
        if stopping is None or epochs is None:
            return 1.0, 1.0, 1.0
        ended = self._shares.get((at.names["model"], at.names["workload"], epochs), [1.0])
        return min(1.0, (stopping.patience + 1) / epochs, *ended), median(ended), 1.0


def whole(costs: Mapping[str, Interval], steps: float, epochs: float) -> Interval:
    """All seconds of a run of so many steps and epochs, whose parts err together."""
    spent = costs["start_s"] + costs["pace_s"].times(steps)
    return spent + costs["validation_s"].times(epochs) if "validation_s" in costs else spent


def forecasts(costs: Costs, config: Config, runs: Sequence[Run], root: Path) -> dict[Run, Forecast]:
    """The forecasts of all runs of which anything is known.

    root: the folder that the config's results folder is in.
    """
    found: dict[Run, Forecast] = {}
    alike: dict[object, Forecast | None] = {}
    with threadpool_limits(1):
        for run in runs:
            settings = choice.resolved(config.settings(run), root / config.results)
            # Runs that differ in their seeds cost the same.
            key = run.without("seed"), settings.choice
            if key not in alike:
                alike[key] = costs.forecast(settings)
            if one := alike[key]:
                found[run] = replace(one, run=run)
    return found


@dataclass(frozen=True)
class Remainder:
    """What some runs will take, as far as records tell.

    known: those that have a forecast; the others count as zero.
    """

    runs: int
    known: int
    node_hours: Interval

    def __str__(self) -> str:
        if not self.known:
            return f"{counted(self.runs, 'run')}, of which no record tells what they take"
        middle, low, high = map(rounded, astuple(self.node_hours))
        some = f"{self.known} of " * (self.known < self.runs) + counted(self.runs, "run")
        return f"about {middle} node-hours ({low} to {high}) for {some}"


def remainder(
    config: Config, runs: Sequence[Run], root: Path, known: Mapping[Path, Record] | None = None
) -> Remainder:
    """What these runs of a config take. known: records that have been read, by their paths."""
    told = Costs.of(root / config.results, known=known) if runs else None
    found = forecasts(told, config, runs, root).values() if told else ()
    return Remainder(len(runs), len(found), total(one.node_hours for one in found))
