"""The first step of a model on a workload, before a study's first long run: whether it works, and whether it stacks."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from pathlib import Path

import msgspec
import torch

from ketscale.config import Data, FileModel, Settings
from ketscale.errors import UserError
from ketscale.grid import BACKENDS
from ketscale.jobs import reads, started
from ketscale.jobs.tried import Tried
from ketscale.parallel.world import World
from ketscale.problems import importer
from ketscale.problems.problem import Problem
from ketscale.training.fit import fit
from ketscale.training.flat import state_of
from ketscale.training.step import Stepper
from ketscale.training.together import close, why_not

# A model that is fitted is tried with at most so many samples of each part.
FEW = 64
# As many seeds show whether a model stacks, which may draw more than its weights, such as which qubits a gate joins.
SEEDS = 5
# Calls of a user's own model: steps in small letters, evaluations in capitals; of two batches of few samples, a and b, and
# of both. Equal ones follow each other, and others, an odd and an even number of calls later.
CALLS = "aaAAbBabABcC", "bbBBaAbaBACc"
PART = 4


def take(settings: Settings, manifest: Path | None) -> Tried:
    """Take the first step of a run on one rank, and evaluate as many samples of the test.

    A run of a GPU computes it on the CPU where there is none, if its simulator can.

    manifest: that of the workload's prepared data; None for a family that prepares nothing.

    Raises:
        UserError: the model, its simulator or the data do not work, or do not fit together.
    """
    run, model, world = settings.run, settings.model, World()
    if torch.cuda.is_available():
        if BACKENDS[run.backend].device == "gpu":
            world.device = torch.device("cuda")
    elif settings.protocol.precision == "amp" or (settings.simulator and settings.simulator.needs_gpu):
        return Tried(why="it needs a GPU, and there is none here")
    with reads.watched() as names, importer.running(run.seed):
        torch.set_num_threads(1)
        trial = _first_step(settings, started.read(settings, manifest), world)
    if isinstance(model, FileModel):
        reads.check(names, run.model, model)
    return trial


def _first_step(settings: Settings, data: Data, world: World) -> Tried:
    """What `take` returns, where there is all that the run needs."""
    run, model, protocol = settings.run, settings.model, settings.protocol
    problem, start = started.build(settings, data, world.device), time.perf_counter()
    split, changed, loss, batch = list(problem.splits)[-1], list[str](), None, torch.arange(1)
    if settings.fitted:
        fit(problem, most=FEW)
        _check_outputs(problem, split, batch)
    else:
        problem.sampler.steps_per_epoch(run.batch)
        batch = next(iter(problem.sampler.batches(run.seed, 0, run.batch)))
        _check_outputs(problem, split, batch)
        start = time.perf_counter()
        sums = Stepper(problem.train(), world, protocol).differentiate(batch, 0)
        loss = float(problem.combine(sums.sums, sums.count)) + float(sums.penalty or 0)
        if not math.isfinite(loss + float(sums.norm)):
            raise UserError(
                f"the loss of the first step is {loss}, and the norm of its gradient {float(sums.norm)}"
            )
    trial = Tried(loss, time.perf_counter() - start)
    if isinstance(model, FileModel):
        changed = _check_own(settings, model, data, world, split)
    sure = loss is None or run.ranks > 1 or model.stacks is not None
    if sure or (settings.simulator and not settings.simulator.stacks):
        return trial
    if changed:
        why = f"a step changes {changed[0]}, whose first values a stack would keep"
    else:
        runs = (dataclasses.replace(run, seed=run.seed + more) for more in range(SEEDS))
        seeds = [started.build(dataclasses.replace(settings, run=each), data, world.device) for each in runs]
        why = why_not(seeds, protocol, batch, split)
    return dataclasses.replace(trial, together=not why, why=why)


def _check_outputs(problem: Problem, split: str, batch: torch.Tensor) -> None:
    """Evaluate as many samples of a split as are in a batch; a loss might take other outputs for something else."""
    count = min(len(batch), problem.splits[split])
    outputs, columns = problem.outputs(split, torch.arange(count)), problem.arguments.get("outputs")
    kind, shape = outputs.dtype, tuple(outputs.shape)
    if columns and (kind not in (torch.float32, torch.float64) or shape != (count, columns)):
        raise UserError(f"the model returns {kind} {shape}, not real numbers {(count, columns)}")
    if not outputs.isfinite().all():
        raise UserError("the outputs of the model are not finite")


def _check_own(settings: Settings, model: FileModel, data: Data, world: World, split: str) -> list[str]:
    """Check that a user's model gives equal numbers whatever it has been called with, and that no sample depends on others.

    Returns the names of the tensors that a training step itself changes, such as running means.

    Raises:
        UserError: equal calls from one state give other numbers, or a sample depends on others; the latter is allowed in steps
            of one rank, which batch normalisation needs.
    """

    def check(wrong: bool, fault: str) -> None:
        if wrong:
            raise UserError(f"{model.file}: {model.class_} {fault} (docs/own-models.md)")

    # No step is taken here, so any rate will do where a search has one.
    rate = settings.protocol.learning_rate or 1.0
    protocol = msgspec.structs.replace(settings.protocol, learning_rate=rate)
    start, results = dict[str, torch.Tensor](), dict[str, tuple[torch.Tensor, dict[str, torch.Tensor]]]()
    for calls in CALLS:
        problem = started.build(settings, data, world.device)
        if settings.fitted and not start:
            fit(problem, most=FEW)
        start = start or state_of(problem.model)
        stepper = None if settings.fitted else Stepper(problem, world, protocol)
        state_before = torch.get_rng_state().tolist(), random.getstate()
        for call in calls if stepper else filter(str.isupper, calls):
            rows = torch.arange(problem.splits["train" if call.islower() else split])
            few = min(PART, max(2, len(rows) // 2), len(rows))
            parts = {"a": rows[:few], "b": rows[-few:], "c": torch.cat([rows[:few], rows[-few:]])}
            samples = parts[call.lower()]
            problem.model.load_state_dict(start)
            problem.train()
            step = stepper and call.islower() and stepper.differentiate(samples, 0).sums
            numbers = step if isinstance(step, torch.Tensor) else problem.outputs(split, samples)
            first, _ = results.setdefault(call, (numbers, state_of(problem.model)))
            check(not close(first, numbers), "makes something else of the same samples each time")
        later = torch.get_rng_state().tolist(), random.getstate()
        check(stepper is not None and later != state_before, "draws random numbers; do so in the constructor")
    changed = {
        call: [name for name in start if not close(state[name], start[name])]
        for call, (_, state) in results.items()
    }
    place = "".join(changed["A"][:1])
    check(bool(place), f"changes {place} in evaluation; change it in training alone")
    halves = torch.cat([results["A"][0], results["B"][0]])
    check(not close(results["C"][0], halves), "evaluates a sample by the others of its batch; leave that out")
    if settings.run.ranks > 1:
        (a, one), (b, other), (both, joint) = (results[call] for call in "abc")
        alike = all(close(each[name], joint[name]) for each in (one, other) for name in start)
        why = "trains a sample by the others in its batch, which ranks share; use nn.LayerNorm, or one rank"
        check(not alike or not close(both, a + b), why)
    return changed.get("a", [])
