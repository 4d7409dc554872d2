"""The stopwatch: calls timed in turns, short ones in loops, the garbage collector off."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ketscale.process import uncollected

# A timed loop lasts at least this long, far above the clock's resolution and a timer interrupt.
LOOP_S = 5e-3
# Calls longer than this are repeated less often.
LONG_S = 1.0
FEWEST = 2
PREDICTS_FROM = 32

Clock = Callable[[], float]
Name = TypeVar("Name")


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median and interquartile range over `repeats`."""

    median_s: float
    iqr_s: float
    repeats: int


def once(call: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    """Seconds of a single call."""
    # The collector's passes would be charged to whoever's call they fall into.
    with uncollected():
        start = clock()
        call()
        return clock() - start


def steady(
    calls: Mapping[Name, Callable[[], Any]], repeats: int, clock: Clock = time.perf_counter
) -> dict[Name, Timing]:
    """Time all calls in turns, so that a change in the machine's speed meets all of them alike.

    Two calls of each go before, to warm up and to choose its loop and repeats. Before each loop another quarter of
    it, one call at least, as caches and memory are full of what had the turn before; not before long calls.
    """
    loops: dict[Name, int] = {}
    rounds: dict[Name, int] = {}
    warm: dict[Name, int] = {}
    for name, call in calls.items():
        estimate = min(once(call, clock) for _ in range(2))
        loops[name] = max(1, math.ceil(LOOP_S / max(estimate, 1e-9)))
        warm[name] = math.ceil(loops[name] / 4) if estimate <= LONG_S else 0
        rounds[name] = repeats if estimate <= LONG_S else max(FEWEST, int(repeats * LONG_S / estimate))
    seconds: dict[Name, list[float]] = {name: [] for name in calls}
    for turn in range(max(rounds.values(), default=0)):
        for name, call in calls.items():
            if turn < rounds[name]:
                _looped(call, warm[name])()
                seconds[name].append(once(_looped(call, loops[name]), clock) / loops[name])
    return {name: _timing(values) for name, values in seconds.items()}


def predicted(previous: tuple[int, float] | None, batch: int) -> float:
    """Seconds of a call from (batch, seconds) of a smaller one: in proportion, which is too high rather than too low.

    From fewer than `PREDICTS_FROM` samples nothing is predicted: there the time is mostly that of a call.
    """
    if previous is None or previous[0] < PREDICTS_FROM:
        return 0.0
    return previous[1] * batch / previous[0]


def _looped(call: Callable[[], Any], times: int) -> Callable[[], None]:
    def loop() -> None:
        for _ in range(times):
            call()

    return loop


def _timing(seconds: list[float]) -> Timing:
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return Timing(float(middle), float(high - low), len(seconds))
