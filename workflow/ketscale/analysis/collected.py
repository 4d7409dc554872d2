"""What the tables of studies are made from: the rows of runs.csv by point, with what compares their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter

from ketscale.analysis.comparison import Times
from ketscale.analysis.points import Group, Point, Row, point, point_of
from ketscale.config import Config
from ketscale.grid import POINT, Run, Study
from ketscale.jobs.baselines import Baselines
from ketscale.measure.form import Record
from ketscale.measure.parity import Comparison

# What parity is about: the workload, the model and its size, the simulator and the layout. The batch is left out on purpose:
# fp64 parity is tested at a small batch, and other batches run the same code.
SUBJECT = tuple(name for name in POINT if name not in ("batch", "protocol"))


@dataclass(frozen=True)
class Collected:
    """What the tables of studies are made from.

    points: the rows of runs.csv by point. comparisons: of runs that must train alike. records: those of the rows.
    times: those of all points of the results folder. why: the state of every run without a record, with the reason.
    baselines: of each workload that has a file of them.
    """

    config: Config
    points: Mapping[Point, Group]
    comparisons: Sequence[Comparison]
    records: Mapping[Run, Record]
    times: Times
    why: Mapping[Run, str]
    baselines: Mapping[str, Baselines]

    @classmethod
    def of(
        cls,
        config: Config,
        rows: Iterable[Row],
        comparisons: Iterable[Comparison],
        records: Mapping[Run, Record],
        why: Mapping[Run, str] | None = None,
        baselines: Mapping[str, Baselines] | None = None,
    ) -> Collected:
        """The rows of runs.csv, grouped, with all that is known of their runs."""
        points: dict[Point, list[Row]] = {}
        for row in rows:
            points.setdefault(point(row), []).append(row)
        for group in points.values():
            group.sort(key=itemgetter("seed"))
        return cls(config, points, (*comparisons,), records, Times(points), why or {}, baselines or {})

    @cached_property
    def held(self) -> Mapping[Point, str]:
        """The precisions in which parity held, by values of `SUBJECT`."""
        precisions: dict[Point, set[str]] = {}
        for each in self.comparisons:
            for run in (each.run, each.reference) if each.held else ():
                precisions.setdefault(attrgetter(*SUBJECT)(run), set()).add(each.precision)
        return {subject: "+".join(sorted(found, reverse=True)) for subject, found in precisions.items()}

    def groups(self, study: Study) -> list[Group]:
        """The rows of each point of a study that was measured, in its order."""
        points = dict.fromkeys(map(point_of, study.runs))
        return [self.points[each] for each in points if each in self.points]

    def on(self, host: str) -> Collected:
        """What was measured on one class of hosts; everything for ''."""
        if not host:
            return self
        own = {key: [row for row in group if row["hardware"] == host] for key, group in self.points.items()}
        return replace(self, points={key: group for key, group in own.items() if group})
