"""What runs of a study will cost: their settings and the cost model together."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ketscale.config import Settings
from ketscale.grid import BACKENDS, Run
from ketscale.jobs.costs import samples
from ketscale.jobs.costs.features import Case, case
from ketscale.jobs.costs.interval import Interval, between
from ketscale.jobs.costs.model import COVERAGE, CostModel, Place
from ketscale.jobs.costs.samples import Sample
from ketscale.jobs.costs.scaling import Scaled, Scaling

# Steps, epochs, and whether that is only a bound.
_Length = tuple[int, int | None, bool]

# The range of fewer runs that stopped early says too little.
_ENOUGH = 10


@dataclass(frozen=True)
class Forecast:
    """What a run will cost, with 90 % intervals.

    wall_s: all of its time. start_s: of it, what a process takes to start. step_s: a steady step. memory_bytes: host memory of the largest rank. place: where it is,
    seen from the records. at_most: it may stop early, and no record says when, so `wall_s` is that of all epochs.
    scaled: how it was planned, where it is on more ranks than the records; None for others.
    """

    run: Run
    wall_s: Interval
    step_s: Interval
    memory_bytes: Interval
    place: Place
    at_most: bool
    start_s: Interval
    scaled: Scaled | None = None

    @property
    def node_hours(self) -> Interval:
        """Time on all of its nodes."""
        return self.wall_s.times(self.run.nodes / 3600)

    @property
    def whole(self) -> str:
        """The time of the whole run, in words."""
        return f"{'at most ' * self.at_most}{between(self.wall_s)}"


class Forecaster:
    """Forecasts runs from samples.

    machine: the hardware that runs are forecast for; by default the one that most samples of a run's kind of device are
    of.
    """

    def __init__(self, found: Iterable[Sample], machine: str | None = None) -> None:
        self.model = CostModel(found)
        self._scaling = Scaling(self.model)
        used = Counter(
            (BACKENDS[sample.case.names["backend"]].device, sample.case.names["machine"])
            for sample in self.model.samples
        )
        self._machines = {device: machine or most for (device, most), _ in reversed(used.most_common())}

    @classmethod
    def of(cls, *folders: Path) -> Forecaster:
        """From the records of results folders."""
        return cls(samples.below(folders))

    @property
    def machines(self) -> tuple[str, ...]:
        """The hardware that runs are forecast for."""
        return tuple(dict.fromkeys(self._machines.values()))

    def of_runs(self, settings: Iterable[Settings]) -> dict[Run, Forecast]:
        """The forecasts of all runs of which anything is known."""
        known: list[tuple[Settings, Case, _Length, Scaled | None]] = []
        for one in settings:
            at = self._case(one)
            planned = self._scaling.of(one, at) if at else None
            scaled = planned if isinstance(planned, Scaled) else None
            length = self._length(one, at) if at and (scaled or self.model.knows(at)) else None
            if at and length:
                known.append((one, at, length, scaled))
        guesses = self.model.guess([at for _, at, _, _ in known]) if known else []
        made = {}
        for (one, at, (steps, epochs, at_most), scaled), guess in zip(known, guesses, strict=True):
            interval = scaled.interval if scaled else partial(self.model.interval, guess)
            wall = scaled.wall if scaled else partial(self.model.wall, guess)
            low, middle, high = (
                wall(round(steps * share), epochs and max(1, round(epochs * share)))
                for share in self._shares(one, at)
            )
            wall_s = Interval(middle.middle, low.low, high.high)
            if one.protocol.limit_s is not None:
                wall_s = _limited(wall_s, interval("start_s"), interval("pace_s"), one.protocol.limit_s)
            made[one.run] = Forecast(
                one.run,
                wall_s,
                interval("step_s"),
                interval("memory_bytes"),
                guess.place,
                at_most,
                interval("start_s"),
                scaled,
            )
        return made

    def unplanned(self, settings: Iterable[Settings]) -> dict[Run, str]:
        """Why runs on more ranks than the records are not planned from a step of one rank and its messages."""
        found = {}
        for one in settings:
            at = self._case(one)
            why = self._scaling.of(one, at) if at else None
            if isinstance(why, str):
                found[one.run] = why
        return found

    def _case(self, settings: Settings) -> Case | None:
        machine = self._machines.get(BACKENDS[settings.run.backend].device)
        return case(settings.content, settings.sizes, machine) if machine else None

    def _length(self, settings: Settings, at: Case) -> _Length | None:
        """The steps and epochs of a whole run, and whether only a bound is known; None if no record tells."""
        protocol = settings.protocol
        if protocol.steps is not None:
            return protocol.steps, None, False
        if protocol.epochs is None:
            return None
        per_epoch = self._steps_per_epoch(settings, at)
        if per_epoch is None:
            return None
        at_most = protocol.early_stopping is not None and not self._ended(at, protocol.epochs)
        return protocol.epochs * per_epoch, protocol.epochs, at_most

    def _steps_per_epoch(self, settings: Settings, at: Case) -> int | None:
        """The steps of an epoch, from records of the same workload and optimiser; None if there are none."""
        names = ("workload", "optimiser")
        like = [s for s in self.model.samples if all(s.case.names[name] == at.names[name] for name in names)]
        if not like:
            return None
        if settings.sampler == "shuffled" and settings.protocol.optimiser != "l-bfgs":
            # A batch covers some samples at most, so that the least of these bounds is the closest.
            return math.ceil(min(s.steps_per_epoch * s.batch for s in like) / settings.run.batch)
        return like[0].steps_per_epoch

    def _shares(self, settings: Settings, at: Case) -> tuple[float, float, float]:
        """The share of its epochs that a run takes: at least, in the middle, and at most."""
        stopping, epochs = settings.protocol.early_stopping, settings.protocol.epochs
        if stopping is None or epochs is None:
            return 1.0, 1.0, 1.0
        least = min(1.0, (stopping.patience + 1) / epochs)
        ended = self._ended(at, epochs)
        if not ended:
            return least, 1.0, 1.0
        if len(ended) < _ENOUGH:
            return min(least, ended[0]), statistics.median(ended), 1.0
        return (
            _quantile(ended, (1 - COVERAGE) / 2),
            statistics.median(ended),
            _quantile(ended, (1 + COVERAGE) / 2),
        )

    def _ended(self, at: Case, planned: int) -> list[float]:
        """The shares of their epochs that runs of this model and workload took which might stop early."""
        return sorted(
            sample.epochs / planned
            for sample in self.model.samples
            if sample.epochs is not None
            and sample.stops_early
            and sample.planned == planned
            and all(sample.case.names[name] == at.names[name] for name in ("model", "workload"))
        )


def _limited(wall_s: Interval, start_s: Interval, pace_s: Interval, limit_s: float) -> Interval:
    """The time of a run that ends after the step in which its time is over."""
    steps = math.ceil(limit_s / pace_s.middle)
    return Interval(
        min(wall_s.middle, start_s.middle + steps * pace_s.middle),
        min(wall_s.low, start_s.low + limit_s),
        min(wall_s.high, start_s.high + limit_s + pace_s.high),
    )


def total(forecasts: Iterable[Forecast]) -> Interval:
    """The node-hours of all, as an interval for the case that all err to the same side."""
    return sum((one.node_hours for one in forecasts), Interval(0.0, 0.0, 0.0))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value that a further one is below with this probability, if they are exchangeable."""
    at = min(max(share * (len(ordered) + 1) - 1, 0), len(ordered) - 1)
    return ordered[math.floor(at) if share < 0.5 else math.ceil(at)]
