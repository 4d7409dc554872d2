"""Samplers choose the samples of each training step, as a function of the seed and the step, never of the ranks.

`samples` is the number of training samples; None if every step draws new tasks. `steps_per_epoch` are the steps after which
the trainer validates and adds a row to the history. `batches` are those of an epoch, one for each step from step `start` on:
the global ones, each int64 indices on the CPU, which the trainer shards over the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from ketscale.engines import randomness
from ketscale.errors import UserError

ORDER = randomness.RandomStream("order")


@dataclass(frozen=True)
class Shuffled:
    """Every sample once an epoch, in an order drawn from (seed, epoch); the last batch may be smaller.

    Example:
        >>> [len(batch) for batch in Shuffled(10).batches(seed=0, epoch=1, batch=4)]
        [4, 4, 2]
    """

    samples: int

    def steps_per_epoch(self, batch: int) -> int:
        """The number of batches that cover all samples."""
        return -(-self.samples // batch)

    def batches(self, seed: int, epoch: int, batch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """Slices of the epoch's permutation."""
        order = randomness.permutation(ORDER.key(seed, epoch), self.samples)
        return iter(order.split(batch)[start:])


@dataclass(frozen=True)
class All:
    """All samples in every step, such as the columns of a unitary: a part of them would have another optimum.

    Example:
        >>> list(All(3).batches(seed=0, epoch=1, batch=3))
        [tensor([0, 1, 2])]
    """

    samples: int

    def steps_per_epoch(self, batch: int) -> int:
        """One step, of all samples.

        Raises:
            UserError: `batch` is not the number of samples.
        """
        if batch != self.samples:
            raise UserError(
                f"batch: every step uses all {self.samples} samples, so set batch to {self.samples}"
            )
        return 1

    def batches(self, seed: int, epoch: int, batch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """All samples in their order."""
        for _ in range(start, self.steps_per_epoch(batch)):
            yield torch.arange(self.samples)


@dataclass(frozen=True)
class Stream:
    """New tasks in every step; an epoch is `steps` steps.

    The indices of a step are 0..batch-1. The problem draws their tasks from a random stream of its own, so that the
    ranks do not matter: with `TASKS = randomness.RandomStream("gates.tasks")`, each task is a row of
    `randomness.uniform(TASKS.key(seed, step), indices, columns)`.

    Example:
        >>> len(list(Stream(steps=5).batches(seed=0, epoch=1, batch=4)))
        5
    """

    steps: int
    samples: None = field(default=None, init=False)

    def steps_per_epoch(self, batch: int) -> int:
        """The given `steps`, for any batch size."""
        return self.steps

    def batches(self, seed: int, epoch: int, batch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """The indices 0..batch-1, the same in every step."""
        for _ in range(start, self.steps):
            yield torch.arange(batch)


Sampler = Shuffled | All | Stream
# The samplers by the names that specifications use.
SAMPLERS: dict[str, type[Sampler]] = {"shuffled": Shuffled, "all": All, "stream": Stream}
