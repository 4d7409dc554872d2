"""The passes of a timed run over its steps: repeated while others use its cores; by the accounting the least disturbed counts."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from ketscale.config import Protocol
from ketscale.measure.clock import Clock
from ketscale.measure.quiet import disturbance, disturbances, judged

# How often the steps are taken.
MOST = 3


@dataclass(frozen=True)
class Pass:
    """One training of the run.

    clock: None if memory ran out before there was one. ranks: as of `judged`. train_s: on this rank. watched_s: by the watch
    of rank 0, on every rank. why: the disturbances in words, '' without any. disturbance: as of `quiet.disturbance`.
    """

    number: int
    clock: Clock | None
    ranks: list[dict[str, Any]]
    train_s: float
    watched_s: float
    why: str
    disturbance: float


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
        found = judged(ranks)
        shares = found["others_share"], found["steal_share"], found["throttled_share"]
        why = "; ".join(disturbances(*shares, None, False))
        cpus = len(found["cpus"] or ()) or os.cpu_count() or 1
        number, cost = len(self._passes) + 1, disturbance(*shares, cpus)
        self._passes.append(Pass(number, clock, ranks, train_s, found["watched_s"], why, cost))
        if clock and not why:
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
        # Every rank must decide alike, and each has a `train_s` of its own.
        able = able and 2 * self.last.watched_s < (protocol.limit_s or math.inf)
        return protocol.timed and able and self.last.number < MOST and bool(self.last.why)
