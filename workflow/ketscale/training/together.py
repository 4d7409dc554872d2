"""Whether a new model can be trained in a `Stack`: its numbers must be those that it has alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from ketscale.config import Protocol
from ketscale.errors import short
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.training.stack import Stack
from ketscale.training.step import Stepper

# The largest difference, relative to the largest number. Sums in another order differ by less.
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-10}


def why_not(problems: Sequence[Problem], protocol: Protocol, batch: torch.Tensor, split: str) -> str:
    """The reason why problems that differ in their seeds cannot be trained together; '' if they can.

    They can if torch.func.vmap gives each one's losses, gradients and outputs of a step, to rounding.

    batch: the samples of the step, int64 (n,). split: of which up to n samples are evaluated too.
    """
    world = World()
    few = torch.arange(min(len(batch), problems[0].splits[split]))
    singles = []
    for problem in problems:
        sums = Stepper(problem, world, protocol).differentiate(batch, 0)
        singles.append([sums.sums, *_gradients(problem), problem.outputs(split, few)])
    # A function that vmap does not know may raise anything, and says that it is slow if it can be called.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stack = Stack(problems, [protocol] * len(problems))
            outputs = stack.outputs_of(split, few)
            steps = stack.take([batch] * len(problems), 0)
    except Exception as error:
        return f"torch.func.vmap does not take it: {short(f'{type(error).__name__}: {error}')}"
    for own, problem, step, rows in zip(singles, problems, steps, outputs, strict=True):
        if not all(map(close, [step.sums, *_gradients(problem), rows], own)):
            return "torch.func.vmap gives it other numbers"
    return ""


def _gradients(problem: Problem) -> list[torch.Tensor]:
    return [p.grad.clone() for p in problem.parameters() if p.grad is not None]


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether numbers are equal but for the rounding of sums in another order; integers are equal or not."""
    if torch.equal(one, other):
        return True
    if one.shape != other.shape or one.dtype != other.dtype or other.dtype.to_real() not in ROUNDING:
        return False
    bound = ROUNDING[other.dtype.to_real()] * float(other.abs().max())
    return bool(((one - other).abs() <= bound).all())
