"""The first step of a model on a workload, before a study's first long run: whether it works, and whether it stacks."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import torch

from ketscale.config import Protocol, Settings
from ketscale.errors import UserError, in_words, short
from ketscale.grid import BACKENDS
from ketscale.jobs import started
from ketscale.jobs.tried import Tried
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.training import together
from ketscale.training.fit import fit
from ketscale.training.step import Stepper

# A model that is fitted is tried with at most so many samples of each part.
FEW = 64


def take(settings: Settings, manifest: Path | None) -> Tried:
    """Take the first step of a run on one rank, and evaluate as many samples of the test.

    A run of a GPU takes it on the CPU where there is none, if its simulator can.

    manifest: that of the workload's prepared data; None for a family that prepares nothing.

    Raises:
        UserError: the model, its simulator or the data do not work, or do not fit together.
    """
    run = settings.run
    tried = Tried(run.model, run.simulator, run.size, run.batch)
    world, gpu = World(), torch.cuda.is_available()
    if BACKENDS[run.backend].device == "gpu" and gpu:
        world.device = torch.device("cuda")
    needs = settings.protocol.precision == "amp" or bool(settings.simulator and settings.simulator.needs_gpu)
    if needs and not gpu:
        return dataclasses.replace(tried, why="it needs a GPU, and there is none here")
    torch.set_num_threads(1)
    data = started.read(settings, manifest)
    problem = started.build(settings, data, world.device)
    split = list(problem.splits)[-1]
    if settings.model.fitted:
        begun = time.perf_counter()
        fit(problem, most=FEW)
        step_s = time.perf_counter() - begun
        _check(problem, split, 1)
        return dataclasses.replace(tried, step_s=step_s)
    problem.sampler.steps_per_epoch(run.batch)
    batch = next(iter(problem.sampler.batches(run.seed, 0, run.batch)))
    _check(problem, split, min(len(batch), problem.splits[split]))
    if run.ranks > 1 and settings.model.own_code:
        _check_shares(problem, batch)
    try:
        loss, step_s = _stepped(problem, world, settings.protocol, batch)
    except Exception as error:
        if in_words(error) is not None or not settings.model.own_code:
            raise
        said = short(f"{type(error).__name__}: {error}", 400)
        raise UserError(f"no gradient of a loss can be computed from the model's outputs ({said})") from None
    tried = dataclasses.replace(tried, loss=loss, step_s=step_s)
    if settings.model.stacks is not None or (settings.simulator and not settings.simulator.stacks):
        return tried
    other = dataclasses.replace(settings, run=dataclasses.replace(run, seed=run.seed + 1))
    seeds = [started.build(each, data, world.device) for each in (settings, other)]
    why = together.why_not(seeds, settings.protocol, batch, split)
    return dataclasses.replace(tried, together=not why, why=why)


def _stepped(problem: Problem, world: World, protocol: Protocol, batch: torch.Tensor) -> tuple[float, float]:
    """The loss of the first step, and the seconds that it takes with its gradient.

    Raises:
        UserError: loss or gradient are not finite, or the step depends on more than its samples.
    """
    problem.train()
    drawn = torch.get_rng_state()
    begun = time.perf_counter()
    taken = Stepper(problem, world, protocol).differentiate(batch, 0)
    loss = float(problem.combine(taken.sums, taken.count)) + float(taken.penalty or 0)
    step_s = time.perf_counter() - begun
    for what, value in (("loss", loss), ("norm of the gradient", float(taken.norm))):
        if not math.isfinite(value):
            raise UserError(f"the {what} of the first step is {value}")
    if not torch.equal(torch.get_rng_state(), drawn):
        raise UserError(
            "a training step draws from torch's global generator, so that other ranks and a resumed run would have other "
            "numbers; draw in the constructor, or use torch.nn.Dropout"
        )
    return loss, step_s


def _check_shares(problem: Problem, batch: torch.Tensor) -> None:
    """Check that the sums over two halves of a batch are those over the whole one, as ranks take it.

    Raises:
        UserError: they are not.
    """
    problem.train()
    with torch.no_grad():
        halves = [problem(part, 0) for part in batch.split(-(-len(batch) // 2))]
        if not together.close(torch.stack(halves).sum(0), problem(batch, 0)):
            raise UserError(
                "what the model makes of a sample depends on the others in its batch, so that ranks that share a "
                "batch would have other numbers; leave that out, or use one rank"
            )


def _check(problem: Problem, split: str, count: int) -> None:
    """Evaluate some samples of a split, of which a user's own model may make anything.

    Raises:
        UserError: the outputs are not what a loss can be computed of.
    """
    outputs: Any = problem.outputs(split, torch.arange(count))
    columns = problem.arguments.get("outputs")
    if not isinstance(outputs, torch.Tensor):
        raise UserError(f"the model returns a {type(outputs).__name__}, not a tensor")
    if columns is not None and outputs.shape != (count, columns):
        raise UserError(
            f"for {count} samples the model returns a tensor of shape {tuple(outputs.shape)}, not {(count, columns)}"
        )
    if columns is not None and outputs.dtype not in (torch.float32, torch.float64):
        raise UserError(f"the model returns {outputs.dtype}, not real numbers in single or double precision")
    if not outputs.isfinite().all():
        raise UserError("the model's outputs are not finite")
