"""Trains a cohort: runs of one shape in one process, a step of all at a time.

Each run's `Trainer` decides for itself, by its own numbers, what follows: its history, best weights, early stopping and
divergence. What the runs share is the arithmetic of a step, in a `Stack`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ketscale.errors import UserError
from ketscale.training.loop import Diverged, Stopped, Trainer
from ketscale.training.stack import Stack

# What is saved of each run, by its number in the cohort.
States = dict[int, dict[str, Any]]


def train(
    trainers: Mapping[int, Trainer],
    stack: Stack,
    asked: States,
    save: Callable[[States], None],
    ended: Callable[[int, Exception | None], None],
) -> None:
    """Train the members of a stack, each to the end of its protocol.

    Args:
        trainers: by number, in the order of the stack's members; all at the same step.
        asked: where each trainer puts the state that it wants to be saved.
        save: writes one checkpoint of all runs that are still in training.
        ended: called when a run has ended, with the error that ended it if it did not finish.

    Raises:
        Stopped: a stop was requested, and the checkpoint is written.
    """
    courses = {number: trainer.course() for number, trainer in trainers.items()}
    answers: dict[int, Any] = dict.fromkeys(courses)
    while courses:
        requests: dict[int, torch.Tensor | str] = {}
        gone: dict[int, Exception | None] = {}
        stopped: Stopped | None = None
        for number, course in courses.items():
            try:
                requests[number] = course.send(answers[number])
            except StopIteration:
                gone[number] = None
            except (Diverged, UserError) as why:
                gone[number] = why
            except Stopped as why:
                stopped = why
        staying = [number for number in courses if number not in gone]
        if gone and staying:
            stack.keep([place for place, number in enumerate(courses) if number not in gone])
            # This is saved before the others' records are written: a cohort without them goes on from here.
            asked |= {number: trainers[number].state() for number in staying}
        if asked:
            save(dict(asked))
            asked.clear()
        for number, error in gone.items():
            ended(number, error)
            del courses[number]
        if stopped is not None:
            raise stopped
        if requests:
            leader = trainers[next(iter(requests))]
            found = _answers(stack, list(requests.values()), leader.step, leader.batch)
            answers = dict(zip(requests, found, strict=True))


def _answers(stack: Stack, requests: Sequence[torch.Tensor | str], step: int, batch: int) -> Sequence[Any]:
    """What the members asked for, which is of one kind: they are at the same step."""
    splits = {request for request in requests if isinstance(request, str)}
    if splits:
        (split,) = splits
        return stack.outputs(split, batch)
    return stack.take([request for request in requests if isinstance(request, torch.Tensor)], step)
