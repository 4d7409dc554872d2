"""The passes of a timed run over its steps: repeated while others use its cores; by the accounting the least disturbed counts."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ketscale.config import Protocol
from ketscale.measure.clock import Clock
from ketscale.measure.quiet import disturbance, disturbances, judged

# How often the steps are taken.
MOST = 3


@dataclass
class Pass:
    """One training of the run: its clock, None if memory ran out before there was one; its ranks, as of `judged`; its time."""

    number: int
    clock: Clock | None
    ranks: list[dict[str, Any]]
    train_s: float

    @cached_property
    def _shares(self) -> tuple[float, float, float | None]:
        found = judged(self.ranks)
        return found["others_share"], found["steal_share"], found["throttled_share"]

    @property
    def why(self) -> str:
        """Who disturbed it; '' if nobody did."""
        return "; ".join(disturbances(*self._shares, None, False))

    @property
    def disturbance(self) -> float:
        """See `quiet.disturbance`."""
        cpus = self.ranks[0]["seen"]["cpus"]
        return disturbance(*self._shares, (os.cpu_count() or 1) if cpus is None else len(cpus))


class Passes:
    """The passes so far. Without a repetition there is one."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []

    def add(self, clock: Clock | None, ranks: list[dict[str, Any]], train_s: float) -> None:
        """Add the next one. Its first step is that of the first pass, since a later one compiles nothing."""
        first = self._passes[0].clock if self._passes else None
        if first and clock:
            more_s = (first.first_s or 0.0) - (clock.first_s or 0.0)
            clock.first_s, clock.steps_s, train_s = first.first_s, clock.steps_s + more_s, train_s + more_s
        self._passes.append(Pass(len(self._passes) + 1, clock, ranks, train_s))
        if clock and not self.last.why:
            # Nobody else can have preempted it: threads of its own do, such as those of Gloo, and are part of its step.
            clock.steady_s.preempted = bytearray(len(clock.steady_s.preempted))

    @property
    def last(self) -> Pass:
        """The last one."""
        return self._passes[-1]

    @property
    def best(self) -> Pass:
        """The one that others disturbed least, of equal ones the first."""
        return min(self._passes, key=lambda each: (bool(each.why), each.disturbance))

    def again(self, protocol: Protocol) -> bool:
        """Whether the steps of a run are taken again: of a timed one on CPUs that has time for twice as slow a pass."""
        clock = self.last.clock
        able = clock is not None and clock.device.type == "cpu" and clock.seen is not None
        able = able and 2 * self.last.train_s < (protocol.limit_s or math.inf)
        return protocol.timed and able and self.last.number < MOST and bool(self.last.why)
