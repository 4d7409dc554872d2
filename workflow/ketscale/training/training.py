"""What the end of a run needs of its training, whether that goes by steps or is one fit."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.training.history import History


class Training(ABC):
    """A training of a problem.

    Attributes:
        stepped: whether it goes by steps; a fit has none, and no epochs and losses.
        tested: whether the model is validated and tested at the end; measured: on which splits.
        no_checkpoints: the reason why there are no checkpoints; '' if there are.
        steps_per_epoch, step, samples_seen, losses: the steps of an epoch, those taken, this rank's samples in them, and
            the losses of the first ones.
        fit_s: the seconds of the fit; None of steps.
    """

    stepped: ClassVar[bool] = True
    tested: bool
    measured: Sequence[str] = ("validation", "test")
    no_checkpoints: str
    steps_per_epoch = 0
    fit_s: float | None = None

    def __init__(self, problem: Problem, world: World, clock: Clock, batch: int, history: History) -> None:
        self.problem, self.world, self.clock = problem, world, clock
        self.batch, self.history = batch, history
        self.step = 0
        self.samples_seen = 0
        self.losses: list[float] = []

    @abstractmethod
    def run(self) -> None:
        """Train to the end; see the subclasses for errors."""

    def outputs(self, split: str) -> torch.Tensor:
        """The model's outputs for the samples of a split, by default all in one call; the same rows on every rank."""
        return self.problem.outputs(split, torch.arange(self.problem.splits[split]))

    @property
    def replayed(self) -> int:
        """How many steps were replays of CUDA graphs."""
        return 0

    def summary(self) -> Mapping[str, Any]:
        """What the quality in a record says of how it was reached: `epochs`, `best_epoch` and `chosen`; if it is tested."""
        return {}

    def weights(self) -> Iterable[torch.Tensor]:
        """The numbers that were learned, by default the trainable parameters."""
        return (parameter for parameter in self.problem.parameters() if parameter.requires_grad)

    def metrics(self, split: str, outputs: torch.Tensor) -> dict[str, Any]:
        """All metrics of the outputs of a split."""
        return self.problem.metrics(split, outputs, full=True)

    def weights_hash(self) -> str:
        """SHA-256 of the bytes of what was learned: equal only for bitwise equal weights."""
        digest = hashlib.sha256()
        for tensor in self.weights():
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()
