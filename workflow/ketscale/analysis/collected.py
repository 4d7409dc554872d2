"""What the tables of studies are made from: the rows of runs.csv by point, with what compares their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ketscale.analysis.comparison import Times
from ketscale.analysis.points import Group, Point, Row, point
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.measure.form import Record


@dataclass(frozen=True)
class Collected:
    """What the tables of studies are made from.

    points: the rows of runs.csv by point. held: the precisions in which parity held, by `parity.subject`. records: those
    of the rows.
    """

    config: Config
    points: Mapping[Point, Group]
    held: Mapping[Point, str]
    records: Mapping[Run, Record]

    @classmethod
    def of(
        cls,
        config: Config,
        rows: Iterable[Row],
        held: Mapping[Point, str],
        records: Mapping[Run, Record],
    ) -> Collected:
        """The rows of runs.csv, grouped."""
        points: dict[Point, list[Row]] = {}
        for row in rows:
            points.setdefault(point(row), []).append(row)
        return cls(config, points, held, records)

    @cached_property
    def times(self) -> Times:
        """The times of all points."""
        return Times(self.points)
