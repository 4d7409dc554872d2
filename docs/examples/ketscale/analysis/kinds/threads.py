"""Threads: what more threads of one process bring."""

from __future__ import annotations

from collections.abc import Iterator

from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.speed import Speed, one_core
from ketscale.config import Config
from ketscale.grid import Study


class Threads(Speed):
    name = "threads"
    varies = "threads"
    title = "Threads"
    caption = "Speedup of one process over one thread."
    axis = "speedup over one thread"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        if any(run.ranks > 1 for run in study.runs):
            yield "a study of kind threads compares threads of one process; give backends such as cpu-n1r1t2"
        yield from one_core(study)

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        return gains.with_one(gains.points(study, inputs), inputs)
