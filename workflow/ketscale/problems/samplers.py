"""Samplers: which samples a training step takes, as a function of (seed, step) and never of the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from ketscale.errors import UserError
from ketscale.problems import randomness

ORDER = randomness.Stream("order")


class Sampler(Protocol):
    """The global batches of training; each is int64 indices on the CPU, which the trainer shares among the ranks."""

    @property
    def samples(self) -> int | None:
        """How many training samples there are; None where tasks are drawn afresh for ever."""
        ...

    def steps_per_epoch(self, batch: int) -> int:
        """Steps after which an epoch ends: validation, and a row of the history.

        Raises:
            UserError: the sampler cannot take batches of this size.
        """
        ...

    def batches(self, seed: int, epoch: int, batch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """The indices of an epoch's steps, from its step `start` on."""
        ...


@dataclass(frozen=True)
class Shuffled:
    """Data in epochs: every sample once an epoch, in an order drawn from (seed, epoch); the last batch may be smaller."""

    samples: int

    def steps_per_epoch(self, batch: int) -> int:
        """As many batches as it takes to see every sample."""
        return -(-self.samples // batch)

    def batches(self, seed: int, epoch: int, batch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """Parts of the epoch's permutation."""
        order = randomness.permutation(ORDER.key(seed, epoch), self.samples)
        return iter(order.split(batch)[start:])


@dataclass(frozen=True)
class All:
    """Every sample in every step, such as the columns of a unitary: part of them would have another optimum."""

    samples: int

    def steps_per_epoch(self, batch: int) -> int:
        """One."""
        if batch != self.samples:
            raise UserError(
                f"batch is {batch}, but every step takes all {self.samples} samples of this problem, since fewer "
                f"would optimise another figure of merit: set batch to {self.samples}"
            )
        return 1

    def batches(self, seed: int, epoch: int, batch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """All samples in their order."""
        for _ in range(start, self.steps_per_epoch(batch)):
            yield torch.arange(self.samples)


@dataclass(frozen=True)
class Stream:
    """Tasks drawn afresh in every step, `steps` of which are called an epoch.

    The indices of a step are 0..batch-1. The problem draws their tasks from a random stream of its own, so that ranks do
    not matter: with `TASKS = randomness.Stream("gates.tasks")` a row each of
    `randomness.uniform(TASKS.key(seed, step), indices, columns)`.
    """

    steps: int
    samples: None = field(default=None, init=False)

    def steps_per_epoch(self, batch: int) -> int:
        """As many as were asked for."""
        return self.steps

    def batches(self, seed: int, epoch: int, batch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """The numbers of a step's tasks, the same in every step."""
        for _ in range(start, self.steps):
            yield torch.arange(batch)
