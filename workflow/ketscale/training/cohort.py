"""Trains a cohort: runs of one shape in one process, a step of all at a time.

Each run's own `Trainer` determines what follows, by its own numbers: its history, best weights, early stopping,
divergence and checkpoints. What the runs share is the arithmetic of a step, in a `Stack`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ketscale.errors import UserError
from ketscale.training.loop import Diverged, Stopped, Trainer
from ketscale.training.stack import Stack


def train(trainers: Mapping[int, Trainer], end: Callable[[int, Exception | None], None]) -> None:
    """Train some runs, each to the end of its protocol.

    Args:
        trainers: by number; of problems that fit into one stack, with one pace, and at the same step.
        end: called when a run has ended, with the error that ended it if it did not finish.

    Raises:
        Stopped: a stop was requested, and all checkpoints are written.
    """
    trainers = dict(trainers)
    courses = {number: trainer.course() for number, trainer in trainers.items()}
    answers: dict[int, Any] = dict.fromkeys(courses)
    stack: Stack | None = None
    unsaved, counted = False, time.perf_counter()
    while True:
        asks: dict[int, Any] = {}
        finished: dict[int, Exception | None] = {}
        stopped: Stopped | None = None
        for number, answer in answers.items():
            try:
                asks[number] = courses[number].send(answer)
            except StopIteration:
                finished[number] = None
            except (Diverged, UserError) as why:
                finished[number] = why
            except Stopped as why:
                stopped = why
        # Steps that are taken again without those that leave would be equal to rounding only. A checkpoint in the middle
        # of an epoch's end would leave out its validation, so it waits for that.
        unsaved = unsaved or bool(finished)
        running = [trainers[number] for number, one in asks.items() if not isinstance(one, str)]
        if unsaved and len(running) == len(asks) > 0 and running[0].pace.rested:
            unsaved = False
            for trainer in running:
                trainer.save()
        for number, error in finished.items():
            end(number, error)
            del trainers[number]
            counted = time.perf_counter()
        if stopped is not None:
            raise stopped
        if not asks:
            return
        if stack is None or finished:
            stack = Stack(
                [one.problem for one in trainers.values()], [one.protocol for one in trainers.values()]
            )
            for place, trainer in enumerate(trainers.values()):
                trainer.join(stack, place)
        first, requests = next(iter(trainers.values())), list(asks.values())
        split = requests[0] if isinstance(requests[0], str) else None
        rows = stack.outputs(split, first.batch) if split else stack.take(requests, first.step)
        answers = dict(zip(asks, rows, strict=True))
        now = time.perf_counter()
        for trainer in trainers.values():
            trainer.share_s = (trainer.share_s or 0.0) + (now - counted) / len(trainers)
        counted = now
