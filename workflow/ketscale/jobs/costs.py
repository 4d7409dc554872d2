"""What runs cost, from the records of others: time and node-hours of a run before it starts.

A run of a point that has records costs what these did. For another, the logarithm of a cost is linear in the model's sizes and
in the logarithms of length, batch and workers, with a level for each workload, model, protocol and machine, as fitted to the
records of its kind of model, simulator and backend. A run without such records has no forecast.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.config import Settings
from ketscale.grid import BACKENDS, RECORDS, Run, canonical
from ketscale.measure import record
from ketscale.measure.form import Host, Record
from ketscale.words import counted, rounded

# A difference of one in each number is about as much as the grid of a study has: eight times the batch, say.
_BATCH, _LENGTH, _WORKERS, _SIZE, _LOG_SIZE = 3.0, 3.0, 2.0, 4.0, 2.0
# What is no level of its own, since it is one of a case's numbers.
_LENGTHS = ("steps", "epochs")
# Standard deviations of a 90 % interval; the least of the logarithm of a cost, and the one without residuals.
_HALF, _LEAST, _UNKNOWN = 1.645, 0.1, 0.5
# How much coefficients are shrunk, for what the records cannot distinguish.
_SHRINKAGE = 0.1


@dataclass(frozen=True)
class Interval:
    """An expected value, and the ends of its 90 % interval."""

    middle: float
    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        """The sum, whose ends are those of values that err together."""
        return Interval(self.middle + other.middle, self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Interval:
        """A multiple."""
        return Interval(self.middle * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        middle, low, high = map(rounded, astuple(self))
        return f"{middle} node-hours ({low} to {high})"


@dataclass(frozen=True)
class Case:
    """What a run's cost may depend on: numbers, scaled, and what is named."""

    numbers: Mapping[str, float]
    names: Mapping[str, str]

    @cached_property
    def point(self) -> str:
        """Equal for cases that cost the same: runs that differ in their seed."""
        return canonical({**self.numbers, **self.names})

    @property
    def known(self) -> tuple[str, ...]:
        """What a record must share with a run to predict its cost."""
        return (*(self.names[name] for name in ("kind", "simulator", "backend")), *sorted(self.numbers))


class Sample(NamedTuple):
    """What a run cost: all of its seconds, in a cohort its share."""

    case: Case
    seconds: float


@dataclass(frozen=True)
class Forecast:
    """What a run will cost, with 90 % intervals."""

    run: Run
    seconds: Interval

    @property
    def node_hours(self) -> Interval:
        """Its time on all of its nodes."""
        return self.seconds.times(self.run.nodes / 3600)


def case(content: Mapping[str, Any], sizes: Mapping[str, int], machine: str) -> Case:
    """The case of a run.

    Args:
        content: the settings of the run, as `Settings.content` and a record's `config` have them.
        sizes: the model's sizes by name.
        machine: the hardware, as `hardware` words it.
    """
    run, protocol, model = content["run"], content["protocol"], content["model"]
    numbers = {"batch": math.log2(run["batch"]) / _BATCH}
    numbers |= {axis: math.log2(run[axis]) / _WORKERS for axis in ("nodes", "ranks", "threads")}
    numbers |= {name: math.log2(length) / _LENGTH for name in _LENGTHS if (length := protocol[name])}
    # A register doubles what each qubit more costs; layers and segments multiply it. Data determine the kind of a size.
    for name, size in sizes.items():
        numbers |= {name: size / _SIZE, f"log {name}": math.log2(1 + size) / _LOG_SIZE}
    names = {
        # That of a model in a user's own file is its class.
        "kind": str(model.get("class", model["kind"])),
        "simulator": canonical(content["simulator"] or {}),
        "backend": run["backend"],
        "device": BACKENDS[run["backend"]].device,
        "workload": canonical(content["workload"]),
        "model": canonical(model),
        "protocol": canonical({name: value for name, value in protocol.items() if name not in _LENGTHS}),
        "machine": machine,
    }
    return Case(numbers, names)


def hardware(machine: Host) -> str:
    """The hardware of a machine in words: processor, cores and GPUs."""
    # An allocation may have only some of the cores and GPUs; the machine is the same.
    cores = machine.topology.physical_cores if machine.topology else machine.cores
    return ", ".join(
        [f"{machine.cpu}, {counted(cores, 'core')}", *sorted({gpu.name for gpu in machine.gpus})]
    )


def sample(of: Record) -> Sample | None:
    """The sample that a record is; None if the run failed or was resumed."""
    if of.status not in ("completed", "timed_out") or of.resumed:
        return None
    seconds = 3600 * of.node_hours / Run.of(of.run).nodes + of.timing.startup_s / (1 + len(of.cohort))
    return Sample(case(of.config, of.sizes, hardware(of.machine)), seconds) if seconds > 0 else None


def below(folders: Iterable[Path], records: Mapping[Path, Record] | None = None) -> list[Sample]:
    """The samples of all whole records in results folders, whatever config they are of.

    Args:
        records: records that have been read, by their paths.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(RECORDS))]
    read = ((records or {}).get(path) or record.read(path).record for path in paths)
    return [one for each in read if each and (one := sample(each))]


class Law:
    """The seconds of runs that have the same numbers by name: of a point that has records, and of others by a fit to these.

    The logarithms are fitted by ridge regression, whose interval has the errors of each point's prediction from all others.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        logs: dict[str, list[float]] = {}
        cases = {one.case.point: one.case for one in samples}
        for one in samples:
            logs.setdefault(one.case.point, []).append(math.log(one.seconds))
        self._own = {point: (statistics.fmean(own), len(own)) for point, own in logs.items()}
        repeats = [log - self._own[point][0] for point, own in logs.items() if len(own) > 1 for log in own]
        self._noise = _spread(repeats)
        self._numbers = [*next(iter(cases.values())).numbers]
        self._names = sorted({pair for at in cases.values() for pair in at.names.items()})
        rows = np.array([self._row(at) for at in cases.values()])
        means = np.array([self._own[point][0] for point in cases])
        self._least, self._most = (ends(rows[:, : len(self._numbers)], axis=0) for ends in (np.min, np.max))
        self._centre, self._mean = rows.mean(axis=0), means.mean()
        rows -= self._centre
        self._inverse = np.linalg.inv(rows.T @ rows + _SHRINKAGE**2 * np.eye(rows.shape[1]))
        self._slopes = self._inverse @ rows.T @ (means - self._mean)
        leverage = 1 / len(rows) + np.sum(rows @ self._inverse * rows, axis=1)
        errors = (means - self._mean - rows @ self._slopes) / np.sqrt(np.maximum(1 - leverage, 1e-6))
        self._spread = _spread(errors) if len(rows) - leverage.sum() >= 2 else _UNKNOWN

    def interval(self, case: Case) -> Interval | None:
        """The seconds of a run of a case; None if one of its numbers is too far from those of all records.

        It is if there is more than a grid of a study between them: eight times the batch, four times the ranks, or four qubits.
        """
        row = self._row(case)
        numbers = row[: len(self._numbers)]
        if np.any((numbers < self._least - 1) | (numbers > self._most + 1)):
            return None
        if case.point in self._own:
            middle, runs = self._own[case.point]
            half = _HALF * self._noise * math.sqrt(1 + 1 / runs)
        else:
            row -= self._centre
            middle = self._mean + row @ self._slopes
            half = _HALF * self._spread * math.sqrt(1 + row @ self._inverse @ row)
        return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))

    def _row(self, at: Case) -> NDArray[np.float64]:
        names = [float(at.names[name] == value) for name, value in self._names]
        return np.array([*(at.numbers[name] for name in self._numbers), *names])


def _spread(errors: Sequence[float] | NDArray[np.float64]) -> float:
    """The root of the mean square of errors of logarithms, or the least that is ever assumed."""
    return max(_LEAST, float(np.sqrt(np.mean(np.square(errors))))) if len(errors) else _LEAST


class Costs:
    """What samples predict about the costs of other runs.

    records: how many there are. machines: the hardware that runs are forecast for, which most samples of a kind of device
    are of.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        groups: dict[tuple[str, ...], list[Sample]] = {}
        for one in samples:
            groups.setdefault(one.case.known, []).append(one)
        self._laws = {case: Law(alike) for case, alike in groups.items()}
        used = Counter((one.case.names["device"], one.case.names["machine"]) for one in samples)
        self._machine = {device: most for (device, most), _ in reversed(used.most_common())}
        self.records, self.machines = len(samples), tuple(dict.fromkeys(self._machine.values()))

    def seconds(self, case: Case) -> Interval | None:
        """The seconds of a run; None if no record has its model, simulator and backend, or all are too far from it."""
        law = self._laws.get(case.known)
        return law.interval(case) if law else None

    def forecasts(self, runs: Iterable[Settings]) -> dict[Run, Forecast]:
        """The forecasts of all runs that have samples."""
        forecasts: dict[Run, Forecast] = {}
        # Runs that differ in their seeds cost the same.
        alike: dict[object, Interval | None] = {}
        for settings in runs:
            run, key = settings.run, (settings.run.without("seed"), settings.choice)
            if key not in alike:
                machine = self._machine.get(BACKENDS[run.backend].device, "")
                alike[key] = self.seconds(case(settings.content, settings.sizes, machine))
            if seconds := alike[key]:
                forecasts[run] = Forecast(run, seconds)
        return forecasts


def total(forecasts: Iterable[Forecast]) -> Interval:
    """The node-hours of all, as an interval for the case that all err to the same side."""
    return sum((one.node_hours for one in forecasts), Interval(0.0, 0.0, 0.0))
