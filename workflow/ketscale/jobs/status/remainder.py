"""Estimates what is left of a study: how long the runs without a result will take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ketscale.grid import Run
from ketscale.jobs.costs.forecast import Forecast
from ketscale.jobs.costs.interval import Interval
from ketscale.jobs.status.survey import Seen


@dataclass(frozen=True)
class Remainder:
    """What is left: the wall times of runs without a result, as far as anything is known of them.

    runs: without a result. known: those that have a forecast; the others count as zero. at_most: those of the known that
    may stop early, and nothing is known of when.
    """

    runs: int
    known: int
    at_most: int
    wall_s: Interval
    node_hours: Interval
    at_once: int


def remainder(seen: Iterable[Seen], forecasts: Mapping[Run, Forecast], now: datetime) -> Remainder:
    """How long the runs without a result will take; for running ones, the time so far is subtracted."""
    seen = list(seen)
    left = [one for one in seen if one.state != "done"]
    wall = node = Interval(0.0, 0.0, 0.0)
    for one in left:
        if one.run in forecasts:
            expected = forecasts[one.run].wall_s
            if one.state == "running":
                expected = expected.less(one.age_s(now))
            wall += expected
            node += expected.times(one.run.nodes / 3600)
    known = [forecasts[one.run] for one in left if one.run in forecasts]
    return Remainder(
        len(left),
        len(known),
        sum(one.at_most for one in known),
        wall,
        node,
        sum(one.state == "running" for one in seen),
    )
