"""Training steps as the trainer takes them on the GPU: kernel by kernel, and as CUDA graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from benchmarks import machine, steps, stopwatch
from benchmarks.steps import ModelCase
from ketscale.parallel.single import Single
from ketscale.training.replayed import BEFORE
from ketscale.training.step import Stepper
from ketscale.training.step_sums import StepSums
from tests.nightly.gpu.measure import Part

CELLS = (
    ModelCase("vqc", 4, 64),
    ModelCase("hydra", 6, 128),
    ModelCase("vqc", 8, 2048),
    ModelCase("mamba", 6, 32),
    ModelCase("superposition_transformer", 4, steps.SENTENCES),
)
REPEATS = 7


def measure(part: Part) -> None:
    """Both in turn, with indices that come from the host as the sampler's do."""
    device = torch.device("cuda", 0)
    for case in CELLS:
        if part.left() < 8:
            part.say(cell=str(case), skipped="the time was over")
            continue
        calls = {}
        for name, replays in (("kernels", False), ("graph", True)):
            stepper = stepper_of(case, device, replays)
            calls[name] = machine.finished(call_of(stepper, case), device)
            for _ in range(BEFORE + 1):
                calls[name]()
            assert bool(stepper.replayed) is replays
        result = stopwatch.steady(calls, REPEATS)
        part.say(
            cell=str(case),
            median_s={name: timing.median_s for name, timing in result.items()},
            iqr_s={name: timing.iqr_s for name, timing in result.items()},
        )


def stepper_of(case: ModelCase, device: torch.device, replays: bool) -> Stepper:
    """The trainer's, of a problem of its own."""
    problem, protocol = steps.problem_of(case, "fused", device)
    return Stepper(problem, Single(steps.run_at(case, "fused", "gpu-n1r1t1")), protocol, replays=replays)


def call_of(stepper: Stepper, case: ModelCase) -> Callable[[], StepSums]:
    """A step on all samples of the case, the next one at each call."""
    samples, numbers = torch.arange(case.batch), itertools.count()
    return lambda: stepper.take(samples, next(numbers))
