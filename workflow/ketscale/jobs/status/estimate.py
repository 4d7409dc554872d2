"""What is left of a study: how long the runs without a result will take."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ketscale.grid import Run
from ketscale.jobs.slurm.site import Site
from ketscale.jobs.status.survey import Seen

# Runs that differ in no more than their seed, or their place too, are expected to take equally long.
_SIBLINGS = ("workload", "model", "qubits", "layers", "batch", "simulator", "protocol")
_PLACE = ("backend", "nodes", "ranks", "threads")


@dataclass(frozen=True)
class Estimate:
    """What is left: the wall times of runs without a result, by those of finished runs or by their time limits."""

    runs: int
    by_siblings: int
    by_limits: int
    wall_s: float
    node_hours: float
    at_once: int

    @property
    def unknown(self) -> int:
        """Runs of which nothing says how long they take; they count as nothing."""
        return self.runs - self.by_siblings - self.by_limits


def estimate(seen: Iterable[Seen], site: Site | None, now: datetime) -> Estimate:
    """How long the runs without a result will take; what running ones have had is taken off."""
    seen = list(seen)
    exact, elsewhere = _medians(seen, _SIBLINGS + _PLACE), _medians(seen, _SIBLINGS)
    left = [one for one in seen if one.state != "done"]
    siblings = limits = 0
    wall = node = 0.0
    for one in left:
        expected = exact.get(_key(one.run, _SIBLINGS + _PLACE), elsewhere.get(_key(one.run, _SIBLINGS)))
        if expected is not None:
            siblings += 1
        elif site is not None:
            expected = 60.0 * site.minutes(one.run)
            limits += 1
        else:
            continue
        if one.state == "running":
            expected = max(0.0, expected - one.age_s(now))
        wall += expected
        node += expected * one.run.nodes / 3600
    return Estimate(len(left), siblings, limits, wall, node, sum(one.state == "running" for one in seen))


def _medians(seen: Iterable[Seen], axes: tuple[str, ...]) -> dict[tuple[Any, ...], float]:
    taken: dict[tuple[Any, ...], list[float]] = {}
    for one in seen:
        if one.wall_s is not None:
            taken.setdefault(_key(one.run, axes), []).append(one.wall_s)
    return {key: statistics.median(seconds) for key, seconds in taken.items()}


def _key(run: Run, axes: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(run, axis) for axis in axes)
