"""What the tables of studies are made from, and the comparison of the times of two points: the only place that makes an
estimate of them, so that all quote the same.

The estimand is the ratio of the *typical* run's times: of runs in the state in which most of a point's runs are. It is
estimated on the logarithm from pairs of runs of one seed; pairs that are outliers are excluded and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from operator import itemgetter
from typing import Any

from ketscale.analysis import comparability, points
from ketscale.analysis.intervals import FEWEST, Estimate, inliers, spread, typical
from ketscale.analysis.points import WORK, Group, Point, Row, point, point_of, usable
from ketscale.config import Config
from ketscale.grid import BACKENDS, POINT, Run, Study
from ketscale.measure.form import Record
from ketscale.measure.parity import Comparison

# Times of single runs are not distinguished below this ratio, whatever the spread over few seeds.
RESOLUTION = 0.005
# The flag of a comparison one side of which has lost more than half of its seeds, so that the rest are a choice.
FAILED = "failed"
STEP, LEAST = "step_s", "least_step_s"


@dataclass(frozen=True)
class Compared:
    """How many times as fast a point is as another, or why that is not known.

    ratio: None without a pair of seeds; without an interval from fewer than three. flag: `FAILED`, or as `points.usable`
    gives it, of the point, or with ' reference' of the other. why: the reason why they cannot be compared, in words;
    there is no ratio then. hosts: the class of host, or both if the study compares devices.
    """

    ratio: Estimate | None
    flag: str = ""
    why: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Times:
    """The times of all points of one results folder."""

    points: Mapping[Point, Group]

    def speedup(self, of: Group, over: Group) -> Compared:
        """How many times as fast the runs `of` are as `over`, if they can be compared; see the function `speedup`."""
        return speedup(of, over, self.least, mismatch)

    def typical(self, group: Group) -> Compared:
        """The time of a step of the typical run of a point, in seconds."""
        used, flag = usable(group)
        why = comparability.mismatch(comparability.times(row) for row in used)
        hosts = tuple(dict.fromkeys(row["hardware"] for row in used))
        if not used or why:
            return Compared(None, flag, why, hosts)
        least = self.least / math.sqrt(2)  # of one time, not of a ratio of two
        sides = [by_seed(used, column) for column in ((STEP, LEAST) if flag == points.BOUNDED else (STEP,))]
        return Compared(
            hull([paired(side, dict.fromkeys(side, 1.0), least) for side in sides]), flag, "", hosts
        )

    @cached_property
    def least(self) -> float:
        """The least standard deviation of a log ratio over seeds that is accepted.

        Three equal times do not show that there is no noise. So it is that of the quietest tenth of all pairs of points
        that do the same work, a pool of the whole folder, and at least that of `RESOLUTION`.
        """
        groups: dict[tuple[Any, ...], list[Mapping[int, float]]] = {}
        for group in self.points.values():
            used, flag = usable(group)
            if len(used) >= FEWEST and not flag and len({row["hardware"] for row in used}) == 1:
                work = tuple(used[0][name] for name in WORK)
                groups.setdefault((*work, used[0]["hardware"]), []).append(by_seed(used))
        return pooled(logs(*two) for sides in groups.values() for two in combinations(sides, 2))


def pooled(samples: Iterable[Sequence[float]]) -> float:
    """The least standard deviation that is accepted for any of these samples of log ratios; see `Times.least`."""
    spreads = sorted(spread(inliers(values)) for values in samples if len(values) >= FEWEST)
    return max(RESOLUTION, spreads[len(spreads) // 10] if spreads else 0.0)


def speedup(of: Group, over: Group, least: float, reason: Callable[[Group, Group], str]) -> Compared:
    """How many times as fast the runs `of` are as `over`: t_over / t_of of the typical run, paired by seed.

    of, over: all rows of one point each; with itself it is 1. least: as of `Times.least`. reason: why their usable runs
    cannot be compared, in words.
    """
    (subject, flag), (reference, other) = usable(of), usable(over)
    note = points.worst((flag, other and other + points.REFERENCE))
    note = FAILED if any(map(points.mostly_failed, (of, over))) else note
    if not subject or not reference:
        return Compared(None, note)
    hosts = tuple(dict.fromkeys(row["hardware"] for row in (*reference, *subject)))
    if why := reason(subject, reference):
        return Compared(None, note, why, hosts)
    if of is over:
        return Compared(Estimate(1.0, 1.0, 1.0, len(subject)), note, "", hosts)
    sides = [(STEP, STEP), *([(LEAST, STEP), (STEP, LEAST)] if points.BOUNDED in (flag, other) else [])]
    estimates = [paired(by_seed(reference, one), by_seed(subject, two), least) for one, two in sides]
    return Compared(hull(estimates), note, "", hosts)


def mismatch(subject: Group, reference: Group) -> str:
    """Why the usable runs of two points cannot be compared, in words; '' if they can."""
    varied = {name for name in POINT if subject[0][name] != reference[0][name]}
    if BACKENDS[subject[0]["backend"]].device != BACKENDS[reference[0]["backend"]].device:
        varied.add("device")
    own = [comparability.mismatch(comparability.times(row) for row in side) for side in (subject, reference)]
    both = comparability.mismatch(comparability.times(row, varied) for row in (*subject, *reference))
    return next(filter(None, (*own, both)), "")


def paired(of: Mapping[int, float], over: Mapping[int, float], least: float) -> Estimate | None:
    """`of` over `over` of the typical run, from positive amounts by seed; None without a pair.

    least: as of `Times.least`.
    """
    estimate = typical(logs(of, over), least)
    return estimate and estimate.mapped(math.exp)


def logs(of: Mapping[int, float], over: Mapping[int, float]) -> list[float]:
    """log(of / over) of each seed that both have, in the order of seeds."""
    pairs = [(of[seed], over[seed]) for seed in sorted(of.keys() & over.keys())]
    return [math.log(one) - math.log(two) for one, two in pairs if min(one, two) > 0]


def hull(estimates: Sequence[Estimate | None]) -> Estimate | None:
    """The first estimate, with an interval that has those of the others too: of times within bounds."""
    first, *others = estimates
    if first is None or first.low is None or first.high is None:
        return first
    ends = [end for each in others if each for end in (each.low, each.high) if end is not None]
    return replace(first, low=min([first.low, *ends]), high=max([first.high, *ends]))


def by_seed(rows: Group, column: str = STEP) -> dict[int, float]:
    """The times of a point by seed: as measured, or the least that they can be alone."""
    return {row["seed"]: (None if row["quiet"] else row[column]) or row[STEP] for row in rows}


@dataclass(frozen=True)
class Collected:
    """What the tables of studies are made from.

    points: the rows of runs.csv by point. comparisons: of runs that must train alike. records: those of the rows.
    times: those of all points of the results folder. why: the state of every run without a record, with the reason.
    """

    config: Config
    points: Mapping[Point, Group]
    comparisons: Sequence[Comparison]
    records: Mapping[Run, Record]
    times: Times
    why: Mapping[Run, str]

    @classmethod
    def of(
        cls,
        config: Config,
        rows: Iterable[Row],
        comparisons: Iterable[Comparison],
        records: Mapping[Run, Record],
        why: Mapping[Run, str] | None = None,
    ) -> Collected:
        """The rows of runs.csv, grouped, with all that is known of their runs."""
        points: dict[Point, list[Row]] = {}
        for row in rows:
            points.setdefault(point(row), []).append(row)
        for group in points.values():
            group.sort(key=itemgetter("seed"))
        return cls(config, points, (*comparisons,), records, Times(points), why or {})

    def groups(self, study: Study) -> list[Group]:
        """The rows of each point of a study that was measured, in its order."""
        points = dict.fromkeys(map(point_of, study.runs))
        return [self.points[each] for each in points if each in self.points]
