"""One run, from its settings to its record: waits for its turn, opens the world, and trains it alone or with others."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ketscale import process
from ketscale.config import Settings
from ketscale.errors import in_words
from ketscale.files import clear
from ketscale.jobs import (
    cohort_session,
    cohorts,
    finished,
    locks,
    outcome,
    prepared,
    results,
    started,
    supervise,
)
from ketscale.jobs.context import Context
from ketscale.jobs.locks import Lock
from ketscale.jobs.started import ActiveRun, Signals
from ketscale.measure import host
from ketscale.measure.clock import MOST_PASSES, Clock, Pass, best, next_pass, repeats, sampled_steps
from ketscale.parallel.world import World, check_variables, open_world
from ketscale.problems.problem import Problem
from ketscale.problems.registry import FAMILIES
from ketscale.training import checkpoint
from ketscale.training.loop import Stopped
from ketscale.words import notice, say


def train(settings: Settings, folder: Path, manifest: Path | None, cohort: Path | None = None) -> str:
    """Train a run, write `folder`/metrics.json, history.csv and the trained model, and return the run's status.

    Every rank calls this. A run that diverges, or does not fit in memory, leaves a record that says so.

    If two processes are given the same run, the second waits for the first and uses its result, if there is one.

    Args:
        manifest: of the workload's prepared data; None for a family that prepares nothing.
        cohort: names runs of the same shape, which are trained together with this one unless they are finished, or
            others train them.

    Raises:
        UserError: something that the run needs is missing here, the ranks are not those that it needs, or another
            process has taken the run over.
        Stopped: SIGTERM or SIGINT came and the checkpoint is written.
    """
    signals = Signals()
    run, protocol = settings.run, settings.protocol
    host.set_threads(run.threads)
    process.keep_freed_memory()
    if protocol.mistake == "oversubscribed":
        host.set_threads_of_all_cores(run.threads)
    check_variables(run)
    world = open_world(run)
    if protocol.stepped:  # a fit has nothing to save, and ends where it is
        signals.heed_stop()
    # An error ends the other ranks before locks are given back, which a hanging disk could delay.
    with contextlib.closing(world), contextlib.ExitStack() as locked, _all_or_none(world):
        # One job of a cohort at a time: the first trains the runs of those that wait.
        if cohort is not None:
            _hold(Lock(cohort.with_suffix("")), world, signals, locked)
        lock = Lock(folder)
        waited = _hold(lock, world, signals, locked)
        current = ActiveRun(settings, folder, lock, manifest)
        record = None
        if world.rank == 0:
            clear(folder, folder / checkpoint.FOLDER, folder / finished.KEPT)
            if waited or cohort is not None:  # the previous process may have left a result
                record = finished.result(folder, settings, prepared.features_hash(manifest))
        # Other nodes may see the file later.
        status = world.gather(record and record.status)[0]
        return status or _train(current, world, signals, cohort)


def _train(run: ActiveRun, world: World, signals: Signals, cohort: Path | None) -> str:
    """Train a run whose lock is held, with those of its cohort that no process trains if there are any."""
    try:
        context = Context.detect(run.settings, world)
        if cohort is not None:
            status = cohort_session.train(run, cohorts.read(cohort, FAMILIES), context, signals)
            if status is not None:
                return status
        return _train_single(run, context, signals)
    except Stopped as stopped:
        if world.rank == 0 and not run.lock.finished:
            # The process that started the ranks may be ended before it can write its own note.
            supervise.leave_note(run.folder, f"{supervise.why_stopped()}; {stopped}")
        raise


@contextlib.contextmanager
def _all_or_none(world: World) -> Iterator[None]:
    """An error on one rank ends all of them."""
    try:
        yield
    except Stopped:
        raise
    except BaseException:
        if world.ranks > 1:
            # The other ranks wait for this one in a collective; with some launchers they would wait for ever.
            if (message := in_words(sys.exception())) is not None:
                say(message)
            else:
                notice(f"rank {world.rank} failed and ends the run")
                traceback.print_exc()
            world.abort()
        raise


def _hold(lock: Lock, world: World, signals: Signals, locked: contextlib.ExitStack) -> bool:
    """Rank 0 takes a lock until `locked` closes, and waits while another process holds it. Every rank calls this.

    Returns:
        Whether it had to wait.
    """
    locked.callback(lock.release)
    waited = False
    while True:
        acquired = world.rank == 0 and lock.acquire()
        if any(world.gather(acquired)):
            return waited
        if any(world.gather(signals.stop)):
            raise Stopped("stopped while waiting for the process that is training this run")
        if world.rank == 0:
            if not waited:
                notice(
                    f"{lock.folder}: {locks.last(lock.folder)} is training this run; waiting until it ends"
                )
            time.sleep(1)
        waited = True


def _train_single(run: ActiveRun, context: Context, signals: Signals) -> str:
    """Train one run on all ranks of the world, write its record and return its status. Every rank calls this.

    A timed run whose cores others used is trained again; see `measure.clock`. All passes compute the same numbers.
    """
    world = context.world
    passes = list[Pass]()
    result, collective = _pass(run, context, signals, passes)
    while result.status == "completed" and repeats(passes, run.settings.protocol):
        if world.rank == 0:
            notice(f"{passes[-1].why}: its steps are taken again (pass {len(passes) + 1} of {MOST_PASSES})")
        result, collective = _pass(run, context, signals, passes)
    counts = best(passes) if result.status == "completed" else passes[-1]
    if run.trainer is not None and counts.clock is not None:
        run.trainer.clock, result = counts.clock, replace(result, train_s=counts.train_s)
    if world.rank == 0 or not collective:
        results.write(run, result, context, counts.ranks, len(passes))
    if not collective:
        world.abort()
    return result.status


def _pass(
    run: ActiveRun, context: Context, signals: Signals, passes: list[Pass]
) -> tuple[outcome.Outcome, bool]:
    """Train a run from its start to its end, and add the pass: how it ended, and whether all ranks got there."""
    world, protocol = context.world, run.settings.protocol
    with outcome.Memory() as memory, process.uncollected():
        run.load(world.device)
    started.demand_one_code(world)
    # If it does not fit on one rank, the others must not wait for that one.
    misfit = next((why for why in world.gather(memory.ran_out) if why), None)
    if run.problem is not None and misfit is None:
        with memory:
            run.begin(world, _clock(run.settings, run.problem, context), signals)
    trainer, unfit = run.trainer, misfit or memory.ran_out
    result = outcome.run(trainer) if trainer and not unfit else outcome.Outcome("out_of_memory", 0.0, unfit)
    # After running out of memory in the trainer the other ranks may be stuck, so there can be no collective.
    collective = result.status != "out_of_memory" or world.ranks == 1 or misfit is not None
    rank = context.of_rank(trainer)
    if trainer and protocol.timed and collective:
        trainer.clock.join(world.gather(bytes(trainer.clock.preempted)))
    ranks = world.gather(rank) if collective else [rank]
    passes.append(next_pass(passes, trainer.clock if trainer else None, ranks, result.train_s))
    return result, collective


def _clock(settings: Settings, problem: Problem, context: Context) -> Clock:
    protocol, device = settings.protocol, context.world.device
    if not protocol.stepped:
        return Clock(device, 0, frozenset())
    steps = protocol.steps or problem.sampler.steps_per_epoch(settings.run.batch)
    sampled = sampled_steps(steps, protocol.warmup, protocol.sampled_steps)
    return Clock(device, protocol.warmup, sampled, context.watch if protocol.timed else None)
