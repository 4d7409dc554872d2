"""The passes of a timed run over its steps: repeated while others use its cores; by the accounting the least disturbed counts."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ketscale.config import Protocol
from ketscale.measure.clock import Clock
from ketscale.measure.quiet import disturbance, disturbances, quietness

# How often the steps are taken.
MOST = 3


@dataclass(frozen=True)
class Pass:
    """One training of the run.

    clock: None if memory ran out before there was one. ranks: as of `judged`. train_s: on this rank. watched_s: by the watch
    of rank 0, on every rank. why: the disturbances in words, '' without any. disturbance: as of `quiet.disturbance`.
    """

    clock: Clock | None
    ranks: list[dict[str, Any]]
    train_s: float
    watched_s: float
    why: str
    disturbance: float


def next_pass(
    before: Sequence[Pass], clock: Clock | None, ranks: list[dict[str, Any]], train_s: float
) -> Pass:
    """The pass after these. Its first step is that of the first pass, since a later one compiles nothing."""
    first = before[0].clock if before else None
    if first and clock:
        more_s = (first.first_s or 0.0) - (clock.first_s or 0.0)
        clock.first_s, clock.steps_s, train_s = first.first_s, clock.steps_s + more_s, train_s + more_s
    quiet = quietness(ranks)
    shares = quiet["others_share"], quiet["steal_share"], quiet["throttled_share"]
    why = "; ".join(disturbances(*shares, False))
    if clock and not why:
        # Nobody else can have preempted it: threads of its own do, such as those of Gloo, and are part of its step.
        clock.preempted = bytearray(len(clock.preempted))
    cost = disturbance(*shares, len(quiet["cpus"] or ()) or os.cpu_count() or 1)
    return Pass(clock, ranks, train_s, quiet["watched_s"], why, cost)


def best(passes: Sequence[Pass]) -> Pass:
    """The one that others disturbed least, of equal ones the first."""
    return min(passes, key=lambda each: (bool(each.why), each.disturbance))


def repeats(passes: Sequence[Pass], protocol: Protocol) -> bool:
    """Whether the steps of a run are taken again: of a timed one on CPUs that has time for twice as slow a pass."""
    last = passes[-1]
    able = last.clock is not None and last.clock.device.type == "cpu" and last.clock.usage is not None
    # Every rank must reach the same decision, and each has a `train_s` of its own.
    able = able and 2 * last.watched_s < (protocol.limit_s or math.inf)
    return protocol.timed and able and len(passes) < MOST and bool(last.why)
