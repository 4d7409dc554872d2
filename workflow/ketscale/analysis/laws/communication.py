"""The time of an all-reduce against its bytes, from the gradients of models of different sizes.

A sampled step times its all-reduce after a barrier, so waiting for the slowest rank is not part of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ketscale.analysis.collected import Collected
from ketscale.analysis.laws.known import HOCKNEY, HOCKNEY_RANKS
from ketscale.analysis.laws.law import Fit
from ketscale.analysis.laws.series import Place, Series, grows
from ketscale.analysis.points import Group, Row
from ketscale.grid import Run
from ketscale.jobs.costs import messages
from ketscale.measure.form import Record


def fits(collected: Collected) -> Iterator[Fit]:
    """The law of each layout whose ranks summed gradients of several sizes, from all studies; and with log2(ranks) where three numbers of ranks ran."""
    layouts: dict[tuple[str, str], list[Row]] = {}
    series: dict[tuple[str, str], list[Row]] = {}
    for row in itertools.chain(*collected.points.values()):
        seconds = _seconds(row, collected.records[Run.of(row)])
        if seconds is not None:
            timed = {**row, "step_s": seconds}  # what a law is fitted to
            layouts.setdefault((row["layout"], row["hardware"]), []).append(timed)
            series.setdefault((grows(row["layout"]), row["hardware"]), []).append(timed)
    for found, law in ((layouts, HOCKNEY), (series, HOCKNEY_RANKS)):
        for (name, _), runs in found.items():
            of_ranks = law is HOCKNEY_RANKS
            if _values(runs, "gradient_bytes") > 1 and (_values(runs, "ranks") > 2 or not of_ranks):
                yield _series(name, runs, of_ranks).fit(law)


def _seconds(row: Row, record: Record) -> float | None:
    """How long one all-reduce of the run's whole gradient takes; None if the run has no such time."""
    size = row["gradient_bytes"]
    if row["ranks"] == 1 or not row["timed"] or not size:
        return None
    return messages.seconds(record.timing.spans, row["backend"], size)


def _values(runs: Group, column: str) -> int:
    return len({row[column] for row in runs})


def _series(name: str, runs: Group, of_ranks: bool) -> Series:
    """The runs by their bytes; where `of_ranks`, by ranks and bytes."""
    places: dict[tuple[float, ...], list[Row]] = {}
    for row in runs:
        ranks = (float(row["ranks"]),) if of_ranks else ()
        places.setdefault((*ranks, float(row["gradient_bytes"])), []).append(row)
    studies = dict.fromkeys(study for row in runs for study in row["studies"].split())
    named = {"study": " ".join(studies), "series": name, **{x: runs[0][x] for x in ("hardware", "code")}}
    made = (
        Place(
            ", ".join([*(f"{ranks:.0f} ranks" for ranks in key[:-1]), f"{key[-1]:.0f} B"]),
            key,
            found,
        )
        for key, found in places.items()
    )
    return Series.of(made, named, own_cores=True)
