"""The first step of a model on a workload, before a study's first long run: whether it works, and whether it stacks."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import msgspec
import torch

from ketscale.config import Data, FileModel, Protocol, Settings
from ketscale.errors import UserError, in_words, short
from ketscale.grid import BACKENDS
from ketscale.jobs import reads, started
from ketscale.jobs.attributes import Attributes
from ketscale.jobs.tried import Tried
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems import importer
from ketscale.problems.importer import GENERATORS, NUMPY_GENERATOR, Shared
from ketscale.problems.problem import Problem
from ketscale.training import together
from ketscale.training.fit import fit
from ketscale.training.flat import state_of
from ketscale.training.history import History
from ketscale.training.probe import Probe
from ketscale.training.step import Stepper

State = dict[str, torch.Tensor]

# A model that is fitted is tried with at most so many samples of each part.
FEW = 64
# Samples of a call after which snapshots of a model are compared.
PART = 4
# As many seeds show whether a model stacks, which may draw more than its weights, such as which qubits a gate joins.
SEEDS = 5


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
    before = Shared()
    torch.set_num_threads(1)
    try:
        with reads.watched() as names:
            tried = _taken(settings, started.read(settings, manifest), world, tried)
        if isinstance(settings.model, FileModel):
            reads.check(names, run.model, settings.model)
        return tried
    finally:
        before.restore()


def _taken(settings: Settings, data: Data, world: World, tried: Tried) -> Tried:
    """What `take` returns, where there is all that the run needs."""
    run, model = settings.run, settings.model
    who = f"{model.file}: {model.class_}" if isinstance(model, FileModel) else "the model"
    problem = started.build(settings, data, world.device)
    built, split = Shared(), list(problem.splits)[-1]
    start = state_of(problem.model)
    if (probe := settings.protocol.probe) is not None:
        begun = time.perf_counter()
        few = msgspec.structs.replace(settings.protocol, probe=msgspec.structs.replace(probe, draws=2))
        clock = Clock(world.device, 0, frozenset())
        Probe(problem, world, clock, dataclasses.replace(settings, protocol=few), History(None)).run()
        if model.own_code:
            _check_attributes(settings, data, world, split, who)
        return dataclasses.replace(tried, step_s=time.perf_counter() - begun)
    if model.fitted:
        begun = time.perf_counter()
        fit(problem, most=FEW)
        step_s = time.perf_counter() - begun
        _check(problem, split, 1, who)
        _check_left(built, who, fitted=True)
        if model.own_code:
            _check_kept(problem, started.build(settings, data, world.device), split, who)
            _check_attributes(settings, data, world, split, who)
        return dataclasses.replace(tried, step_s=step_s)
    problem.sampler.steps_per_epoch(run.batch)
    batch = next(iter(problem.sampler.batches(run.seed, 0, run.batch)))
    _check(problem, split, min(len(batch), problem.splits[split]), who)
    try:
        loss, step_s = _stepped(problem, world, settings.protocol, batch)
    except Exception as error:
        if in_words(error) is not None or not model.own_code:
            raise
        said = short(f"{type(error).__name__}: {error}", 400)
        raise UserError(f"{who}: no gradient of a loss can be computed from its outputs ({said})") from None
    _check_left(built, who)
    changed = _check_state(problem, start, batch, split, run.ranks, who) if model.own_code else []
    if model.own_code:
        _check_attributes(settings, data, world, split, who)
    tried = dataclasses.replace(tried, loss=loss, step_s=step_s)
    if run.ranks > 1 or model.stacks is not None or (settings.simulator and not settings.simulator.stacks):
        return tried
    if changed:
        why = f"a step changes {changed[0]}, of which a stack would keep the first values"
        return dataclasses.replace(tried, together=False, why=why)
    runs = (dataclasses.replace(run, seed=run.seed + more) for more in range(SEEDS))
    seeds = [started.build(dataclasses.replace(settings, run=each), data, world.device) for each in runs]
    why = together.why_not(seeds, settings.protocol, batch, split)
    return dataclasses.replace(tried, together=not why, why=why)


def _stepped(problem: Problem, world: World, protocol: Protocol, batch: torch.Tensor) -> tuple[float, float]:
    """The loss of the first step, and the seconds that it takes with its gradient.

    Raises:
        UserError: loss or gradient are not finite.
    """
    problem.train()
    begun = time.perf_counter()
    taken = Stepper(problem, world, protocol).differentiate(batch, 0)
    loss = float(problem.combine(taken.sums, taken.count)) + float(taken.penalty or 0)
    step_s = time.perf_counter() - begun
    for what, value in (("loss", loss), ("norm of the gradient", float(taken.norm))):
        if not math.isfinite(value):
            raise UserError(f"the {what} of the first step is {value}")
    return loss, step_s


def _check_left(before: Shared, who: str, fitted: bool = False) -> None:
    """Check that a model has left what all code shares as it was.

    fitted: it may draw random numbers, which begin with the run's seed.

    Raises:
        UserError: it has not.
    """
    for name in before.changed():
        # PennyLane draws from NumPy's, of which nothing depends.
        if name in GENERATORS and name != NUMPY_GENERATOR and not fitted:
            raise UserError(
                f"{who} draws from {name} in a training step, so that other ranks and a resumed run would have other "
                "numbers; draw in the constructor, or use torch.nn.Dropout"
            )
        if name not in GENERATORS:
            raise UserError(f"{who} changes {name}, which the whole process has in common; leave that out")


def _check_kept(problem: Problem, fresh: Problem, split: str, who: str) -> None:
    """Check that what a fitted model has learned is in the tensors that are kept.

    fresh: the same problem, not fitted.

    Raises:
        UserError: a model that is loaded from them does not give the same outputs.
    """
    few = torch.arange(min(FEW, problem.splits[split]))
    try:
        fresh.model.load_state_dict(problem.model.state_dict())
        kept = together.close(fresh.outputs(split, few), problem.outputs(split, few))
        said = ""
    except Exception as error:  # whatever a user's code raises without what it has learned
        kept, said = False, f" ({short(f'{type(error).__name__}: {error}')})"
    if not kept:
        raise UserError(
            f"{who} keeps what it learns elsewhere than in parameters and buffers, so that it could not be loaded{said}; "
            "register them in the constructor (register_buffer), and set them in fit"
        )


def _check_attributes(settings: Settings, data: Data, world: World, split: str, who: str) -> None:
    """Check that a model keeps nothing from call to call elsewhere than in its state, and no state from an evaluation.

    After equal calls from one state it must keep the same, whatever was called before. What is made once, such as a mask, and
    what is kept of the last samples alone may stay; what counts, draws or collects may not, at whichever count it tells.

    Raises:
        UserError: it does; names the attribute.
    """
    model = settings.model
    assert isinstance(model, FileModel)
    # A probe's protocol has no learning rate, and no step is taken here, so any will do.
    protocol = msgspec.structs.replace(
        settings.protocol, learning_rate=settings.protocol.learning_rate or 1.0
    )
    # Two steps and two evaluations, so that equal ones follow each other, and others, an odd and an even number of calls later.
    for calls in ("aaAAbBabAB", "bbBBaAbaBA"):
        problem = started.build(settings, data, world.device)
        few = {name: min(PART, max(2, count // 2), count) for name, count in problem.splits.items()}
        if model.fitted:
            fit(problem, most=FEW)
        stepper = None if model.fitted else Stepper(problem, world, protocol)
        start, before = state_of(problem.model), dict[str, Attributes]()
        for call in calls:
            part = "train" if call.islower() else split
            last = problem.splits[part]
            samples = torch.arange(few[part]) if call in "aA" else torch.arange(last - few[part], last)
            _restore(problem, start, who)
            if part == split:
                problem.outputs(split, samples)
            elif stepper is not None:
                problem.train()
                stepper.differentiate(samples, 0)
            kept = Attributes(problem.model, importer.modules(model.code))
            if place := before.setdefault(call, kept).change(kept):
                raise UserError(
                    f"{who} changes {place} from call to call, which neither checkpoints nor saved weights have, and which "
                    "seeds that train together share; keep it in a buffer (register_buffer), or leave it out"
                )
            state = problem.model.state_dict()
            for name in start if part == split else ():
                if not together.close(state[name], start[name]):
                    raise UserError(
                        f"{who} changes {name} in evaluation, so that its saved weights would give other predictions; change "
                        "it in training alone (if self.training)"
                    )


def _restore(problem: Problem, start: State, who: str) -> None:
    """Give a model the state that it had.

    Raises:
        UserError: it has other tensors now.
    """
    try:
        problem.model.load_state_dict(start)
    except RuntimeError as error:
        raise UserError(
            f"{who} has other tensors after a step than before, so that no run could resume ({short(error)}); make all in "
            "the constructor"
        ) from None


def _check_state(
    problem: Problem, start: State, batch: torch.Tensor, split: str, ranks: int, who: str
) -> list[str]:
    """Check that a checkpoint can have all that a model remembers, and that samples do not depend on others.

    Returns the names of the tensors that a training step itself changes, such as running means.

    start: the model's state when it was built.

    Raises:
        UserError: a step or an evaluation gives other numbers again, or to a part of the samples; the latter is allowed
            in a step of one rank, which batch normalisation needs.
    """
    few = torch.arange(min(len(batch), problem.splits[split]))

    def evaluated(samples: torch.Tensor) -> torch.Tensor:
        _restore(problem, start, who)
        return problem.outputs(split, samples)

    def taken(samples: torch.Tensor) -> tuple[torch.Tensor, State]:
        """The sums of a step from the start, and the state that it leaves."""
        problem.model.load_state_dict(start)
        problem.train()
        with torch.no_grad():
            sums = problem(samples, 0)
        return sums, state_of(problem.model)

    outputs = evaluated(few)
    sums, left = taken(batch)
    changed = [name for name, tensor in left.items() if not together.close(tensor, start[name])]
    if not together.close(taken(batch)[0], sums) or not together.close(evaluated(few), outputs):
        raise UserError(
            f"{who} makes something else of the same samples each time, as if it drew random numbers or counted its calls, "
            "so that a resumed run would have other numbers; leave that out, or keep what it counts in a buffer"
        )
    if ranks > 1:
        shares = [taken(part) for part in batch.split(-(-len(batch) // 2))]
        kept = all(together.close(shares[0][1][name], left[name]) for name in left)
        if not kept or not together.close(torch.stack([own for own, _ in shares]).sum(0), sums):
            raise UserError(
                f"what {who} makes of a sample depends on the others in its batch, so that ranks that share a batch would have "
                "other numbers; leave that out, or use one rank"
            )
    parts = [evaluated(part) for part in few.split(-(-len(few) // 2))]
    if not together.close(torch.cat(parts), outputs):
        raise UserError(
            f"what {who} makes of a sample in evaluation depends on the others beside it, of which there may be any number; "
            "leave that out"
        )
    return changed


def _check(problem: Problem, split: str, count: int, who: str) -> None:
    """Evaluate some samples of a split, of which a user's own model may make anything.

    Raises:
        UserError: the outputs are not what a loss can be computed of.
    """
    outputs: Any = problem.outputs(split, torch.arange(count))
    columns = problem.arguments.get("outputs")
    if not isinstance(outputs, torch.Tensor):
        raise UserError(f"{who} returns a {type(outputs).__name__}, not a tensor; return the outputs alone")
    if columns is not None and outputs.shape != (count, columns):
        raise UserError(
            f"{who} returns a tensor of shape {tuple(outputs.shape)} for {count} samples, not {(count, columns)}"
        )
    if columns is not None and outputs.dtype not in (torch.float32, torch.float64):
        raise UserError(f"{who} returns {outputs.dtype}, not real numbers in single or double precision")
    if not outputs.isfinite().all():
        raise UserError(
            f"the outputs of {who} are not finite; look where it divides, or takes a root or a logarithm"
        )
