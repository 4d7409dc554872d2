"""The clock of a training loop: times the first step, steady steps and sampled steps separately; and a run's passes.

A timed run takes its steps again while others use its cores; by the accounting the least disturbed pass counts.
"""

from __future__ import annotations

import math
import os
import resource
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import torch

from ketscale.config import Protocol
from ketscale.measure.quiet import Watch, disturbance, disturbances, quietness
from ketscale.spans import Recorder

# How often the steps are taken.
MOST_PASSES = 3


def quartiles(seconds: Sequence[float]) -> dict[str, Any]:
    """Median, quartiles, mean and count of durations in seconds; None and a count of 0 if there are none."""
    if not seconds:
        return {"median_s": None, "q25_s": None, "q75_s": None, "mean_s": None, "count": 0}
    q25, median, q75 = (float(q) for q in np.quantile(seconds, (0.25, 0.5, 0.75)))
    return {
        "median_s": median,
        "q25_s": q25,
        "q75_s": q75,
        "mean_s": sum(seconds) / len(seconds),
        "count": len(seconds),
    }


def switched() -> int:
    """How often another process took a processor away from this one (involuntary context switches, getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def sampled_steps(steps: int, warmup: int, count: int) -> frozenset[int]:
    """The sampled ones of `steps` steps: evenly spread over those after warm-up, at most half of them."""
    count = min(count, (steps - warmup) // 2)
    if count <= 0:
        return frozenset()
    return frozenset(int(s) for s in np.linspace(warmup + 1, steps - 1, count))


class Clock:
    """Times every step without disturbing it, and the spans of the sampled steps.

    On a GPU, events in the stream time the steps; they are read only when the loop synchronises anyway.

    Attributes:
        count, unsteady: the number of steps of this process, and of those up to the last that warmed up,
            was sampled or prepared later ones.
        steady_s, preempted: the steady steps, and whether another process preempted each.
        steps_s: all steps together, with the first, warm-up and sampled ones.
        aside_s: all that the loop did between steps on purpose: agreeing, validating, reporting, saving.
        usage: what `watch` saw from the first steady step to the end of the loop; None until it has ended.
    """

    def __init__(
        self, device: torch.device, warmup: int, sampled: frozenset[int], watch: Watch | None = None
    ) -> None:
        self.device = device
        self.warmup = warmup
        self.sampled = sampled
        self.first_s: float | None = None
        self.steps_s = self.aside_s = 0.0
        self.watch = watch
        self.usage: dict[str, Any] | None = None
        # Arrays, since there may be millions.
        self.steady_s, self.preempted = array("d"), bytearray()
        self.sampled_s: list[float] = []
        self.epochs_s: list[float] = []
        self.validations_s: list[float] = []
        self.spans_s: dict[str, list[float]] = {}
        self.count = self.unsteady = 0
        self._pending: list[tuple[int, bool, torch.cuda.Event, torch.cuda.Event]] = []
        self._start: Any = None
        self._switched = 0
        self._partial = self._due = False
        self._recorder: Recorder | None = None

    def start_step(self, step: int, partial: bool = False) -> Recorder | None:
        """Begin a step; returns the recorder to use if this step is sampled.

        partial: whether its batch is smaller than the others, as the last one of an epoch: it is other work, so its time is
            no steady one, and the next step is sampled in its place.
        """
        if self.watch is not None and self.count == self.warmup:
            self.watch.begin()
        self._partial, self._due = partial, self._due or step in self.sampled
        self._recorder = Recorder(self.device) if self._due and not partial else None
        self._due &= partial
        if self._recorder is not None:
            self._start = self._recorder.now()
        elif self.device.type == "cuda":
            self._start = torch.cuda.Event(enable_timing=True)
            self._start.record()
        else:
            self._switched = switched()
            self._start = time.perf_counter()
        return self._recorder

    def stop_step(self, preparing: bool = False) -> None:
        """End the step that was begun. preparing: whether it prepared later ones, so that its time is no steady one."""
        number, self.count = self.count, self.count + 1
        steady = number >= self.warmup and not preparing
        if not steady or self._recorder is not None:
            self.unsteady = self.count
        if self._recorder is not None:
            self.sampled_s.append(self._recorder.now() - self._start)
            self.steps_s += self.sampled_s[-1]
            for name, seconds in (self._recorder.exclusive_s | self._recorder.overlapped_s).items():
                self.spans_s.setdefault(name, []).append(seconds)
        elif self.device.type == "cuda":
            end = torch.cuda.Event(enable_timing=True)
            end.record()
            self._pending.append((number, steady and not self._partial, self._start, end))
        else:
            seconds = time.perf_counter() - self._start
            preempted = self.watch is not None and switched() > self._switched
            self._count(number, steady and not self._partial, seconds, preempted)

    def settle(self) -> None:
        """Read the events of the steps so far, and wait for the device if it has not finished them."""
        for number, steady, start, end in self._pending:
            end.synchronize()
            self._count(number, steady, start.elapsed_time(end) / 1e3)
        self._pending.clear()

    def join(self, ranks: Iterable[bytes]) -> None:
        """Count as preempted what was so on any rank: the ranks wait for each other. ranks: `preempted` of each."""
        self.preempted = bytearray(map(max, zip(self.preempted, *ranks, strict=True)))

    @property
    def excluded(self) -> int | None:
        """How many steady steps were preempted, so that `step` leaves them out; None if they are most, and so it has all."""
        count = sum(self.preempted)
        return None if 2 * count > len(self.steady_s) else count

    def step(self) -> dict[str, Any]:
        """`quartiles` of the steady steps that were not preempted, if they are at least half; else of all."""
        mask = [not each for each in self.preempted] if self.excluded else None
        return quartiles([*compress(self.steady_s, mask)] if mask else self.steady_s)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Watch to the end of the loop, which runs inside."""
        try:
            yield
        finally:
            self.usage = self.watch.usage() if self.watch else None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time what the loop does inside, which belongs to no step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.aside_s += time.perf_counter() - start

    def _count(self, number: int, steady: bool, seconds: float, preempted: bool = False) -> None:
        self.steps_s += seconds
        if number == 0:
            self.first_s = seconds
        elif steady:
            self.steady_s.append(seconds)
            self.preempted.append(preempted)


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
    return protocol.timed and able and len(passes) < MOST_PASSES and bool(last.why)
