"""Threads: how much faster more threads of one process are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import itemgetter

from ketscale.analysis.drawing import times
from ketscale.analysis.kinds import checks, speed
from ketscale.analysis.kinds.kind import Figure, Kind
from ketscale.config import Config
from ketscale.grid import Study


def faults(study: Study, config: Config) -> Iterator[str]:
    """Require one process, and a run on one core."""
    if any(run.ranks > 1 for run in study.runs):
        yield "a study of kind threads compares threads of one process; give backends such as cpu-n1r1t2"
    yield from checks.one_core(study, config)


THREADS = Kind(
    name="threads",
    table="speed",
    rows=partial(speed.rows, speed.Speed(speed.one_worker)),
    faults=faults,
    lead=partial(max, key=itemgetter("effect")),
    figure=Figure(
        "threads",
        "Threads",
        "Speedup of one process over one thread.",
        partial(times.workers, "speedup over one thread"),
    ),
)
