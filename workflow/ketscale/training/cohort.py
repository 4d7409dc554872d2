"""Trains a cohort: runs of one shape in one process, a step of all at a time.

Each run's `Trainer` decides for itself, by its own numbers, what follows: its history, best weights, early stopping,
divergence and checkpoints. What runs at the same step share is the arithmetic of that step, in a `Stack`. A run may come
with a checkpoint of any step: those furthest behind go first, until they have caught up with others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ketscale.errors import UserError
from ketscale.training.loop import Diverged, Stopped, Trainer
from ketscale.training.stack import Stack


def train(trainers: Mapping[int, Trainer], ended: Callable[[int, Exception | None], None]) -> None:
    """Train some runs, each to the end of its protocol.

    Args:
        trainers: by number; of problems that fit into one stack, with one pace.
        ended: called when a run has ended, with the error that ended it if it did not finish.

    Raises:
        Stopped: a stop was requested, and all checkpoints are written.
    """
    trainers = dict(trainers)
    courses = {number: trainer.course() for number, trainer in trainers.items()}
    asked: dict[int, torch.Tensor | str] = {}
    answers: dict[int, Any] = dict.fromkeys(courses)
    stacked: list[int] = []
    unsaved: set[int] = set()
    counted = time.perf_counter()
    while courses:
        gone: dict[int, Exception | None] = {}
        stopped: Stopped | None = None
        for number, answer in answers.items():
            try:
                asked[number] = courses[number].send(answer)
            except StopIteration:
                gone[number] = None
            except (Diverged, UserError) as why:
                gone[number] = why
            except Stopped as why:
                stopped = why
        # Steps that are taken again without those that leave would be equal to rounding only. A checkpoint in the middle
        # of an epoch's end would leave out its validation, so it waits for that.
        unsaved = (unsaved | answers.keys() if gone else unsaved) - gone.keys()
        ready = [one for one in answers if one in unsaved and not isinstance(asked.get(one, ""), str)]
        unsaved -= set(ready)
        # They share a pace, by which the others are too expensive once one is saved.
        for number in ready if ready and trainers[ready[0]].pace.affordable else ():
            try:
                trainers[number].save()
            except UserError as why:
                gone[number] = why
        for number, error in gone.items():
            ended(number, error)
            asked.pop(number, None)
            del courses[number], trainers[number]
            counted = time.perf_counter()
        if stopped is not None:
            raise stopped
        if not courses:
            return
        group = _behind(trainers, asked)
        if group != stacked:
            members, stacked = [trainers[number] for number in group], group
            stack = Stack([one.problem for one in members], [one.protocol for one in members])
            for place, trainer in enumerate(members):
                trainer.join(stack, place)
        answers = dict(
            zip(group, _answers(stack, [asked[number] for number in group], trainers[group[0]]), strict=True)
        )
        now = time.perf_counter()
        for number in group:
            trainers[number].share_s = (trainers[number].share_s or 0.0) + (now - counted) / len(group)
        counted = now


def _behind(trainers: Mapping[int, Trainer], asked: Mapping[int, torch.Tensor | str]) -> list[int]:
    """The runs that have made the fewest steps; before those are validated, they are behind others at the same step."""
    at = {number: (trainers[number].step, not isinstance(one, str)) for number, one in asked.items()}
    least = min(at.values())
    return [number for number, place in at.items() if place == least]


def _answers(stack: Stack, asked: Sequence[torch.Tensor | str], leader: Trainer) -> Sequence[Any]:
    """What the members ask for, which is of one kind."""
    if isinstance(split := asked[0], str):
        return stack.outputs(split, leader.batch)
    return stack.take([one for one in asked if isinstance(one, torch.Tensor)], leader.step)
