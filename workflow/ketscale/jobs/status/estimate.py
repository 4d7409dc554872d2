"""Estimates what is left of a study: how long the runs without a result will take."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ketscale.grid import LAYOUT
from ketscale.jobs.slurm.site import Site
from ketscale.jobs.status.survey import Seen


@dataclass(frozen=True)
class Estimate:
    """What is left: the wall times of runs without a result, estimated from finished runs or from time limits."""

    runs: int
    by_siblings: int
    by_limits: int
    wall_s: float
    node_hours: float
    at_once: int

    @property
    def unknown(self) -> int:
        """Runs without any estimate, which count as zero."""
        return self.runs - self.by_siblings - self.by_limits


def estimate(seen: Iterable[Seen], site: Site | None, now: datetime) -> Estimate:
    """How long the runs without a result will take; for running ones, the time so far is subtracted."""
    seen = list(seen)
    # Runs that differ only in their seed, or only in seed and layout, are expected to take equally long.
    exact, elsewhere = _medians(seen, "seed"), _medians(seen, "seed", *LAYOUT)
    left = [one for one in seen if one.state != "done"]
    siblings = limits = 0
    wall = node = 0.0
    for one in left:
        expected = exact.get(one.run.without("seed"), elsewhere.get(one.run.without("seed", *LAYOUT)))
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


def _medians(seen: Iterable[Seen], *but: str) -> dict[tuple[Any, ...], float]:
    """Median seconds of the finished runs that differ only in these axes."""
    taken: dict[tuple[Any, ...], list[float]] = {}
    for one in seen:
        if one.wall_s is not None:
            taken.setdefault(one.run.without(*but), []).append(one.wall_s)
    return {key: statistics.median(seconds) for key, seconds in taken.items()}
