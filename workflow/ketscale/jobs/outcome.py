"""How a training ended: completed, diverged, out of time or out of memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from ketscale.measure.right import packed, packed_numbers
from ketscale.problems.problem import Problem
from ketscale.training.loop import Diverged, TimedOut
from ketscale.training.training import Training


@dataclass(frozen=True)
class Outcome:
    """How a training ended, and its duration in seconds.

    outputs: the model's outputs for the test samples with the best weights; None for a protocol with steps.
    """

    status: str
    train_s: float
    reason: str | None = None
    quality: dict[str, Any] | None = None
    outputs: torch.Tensor | None = None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; torch's CPU allocator says so only in its message."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class Memory:
    """A context in which running out of memory is no error; `ran_out` says then what happened, in a line."""

    def __init__(self) -> None:
        self.ran_out: str | None = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or not is_out_of_memory(error):
            return False
        self.ran_out = (str(error) or "there is no memory left").splitlines()[0]
        return True


def run(trainer: Training) -> Outcome:
    """Train. Divergence, running out of time and running out of memory are outcomes too."""
    return result_of(trainer, time.perf_counter(), trainer.run)


def result_of(trainer: Training, start: float, train: Callable[[], None]) -> Outcome:
    """How a training ended that `train` finishes, or whose error it raises; it began at `start` (perf_counter)."""
    status, reason = "out_of_memory", None
    with Memory() as memory:
        try:
            train()
            train_s = time.perf_counter() - start
            if not trainer.tested:
                return Outcome("completed", train_s)
            splits = [split for split in trainer.measured if split in trainer.problem.splits]
            outputs = {split: trainer.outputs(split) for split in splits}
            quality = {
                **trainer.summary(),
                "validation": {},
                "test": {},
                **{split: _finite(split, trainer.metrics(split, rows)) for split, rows in outputs.items()},
                "right": _right(trainer.problem, outputs.get("test")),
                "influence": _influence(trainer.problem, outputs.get("test")),
            }
            return Outcome("completed", train_s, quality=quality, outputs=outputs.get("test"))
        except (Diverged, TimedOut) as error:
            status, reason = "diverged" if isinstance(error, Diverged) else "timed_out", str(error)
    return Outcome(status, time.perf_counter() - start, reason or memory.ran_out)


def _right(problem: Problem, outputs: torch.Tensor | None) -> dict[str, Any] | None:
    """Which cases of the test are right, as the record keeps it."""
    right = None if outputs is None else problem.right("test", outputs)
    return None if right is None else msgspec.to_builtins(packed(right.reshape(len(right), -1).tolist()))


def _influence(problem: Problem, outputs: torch.Tensor | None) -> str | None:
    """How much each sample of the test moves the headline metric, as the record keeps it."""
    values = None if outputs is None else problem.influence("test", outputs)
    return None if values is None else packed_numbers(values.tolist())


def _finite(split: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """All metrics of a split.

    Raises:
        Diverged: one of them is not finite; a record can hold none such.
    """
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(f"the {name} on the {split} samples is {value} with the best weights")
    return metrics
