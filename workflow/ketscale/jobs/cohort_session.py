"""A cohort, from the settings of its runs to their records: one process trains all of them; see `training.cohort`.

Each run has its own folder, lock, history, checkpoint, trained model and record, as if it were alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ketscale.config import Settings
from ketscale.errors import UserError
from ketscale.files import clear
from ketscale.grid import RECORD
from ketscale.jobs import choice, finished, outcome, prepared, results, started
from ketscale.jobs.context import Context
from ketscale.jobs.locks import Lock
from ketscale.jobs.started import ActiveRun, Signals
from ketscale.measure.clock import Clock
from ketscale.training import checkpoint, cohort
from ketscale.training.loop import Trainer
from ketscale.training.pace import Pace
from ketscale.training.stack import fits, share
from ketscale.words import notice


def train(run: ActiveRun, others: Sequence[Settings], context: Context, signals: Signals) -> str | None:
    """Train a run together with others of its shape that no process trains and that have no result.

    Write its record, keep those of the others for their own jobs, and return the status of this one; None, and nothing is done, if there are no such others.

    Args:
        run: its lock is held, and its data are not read yet.
        others: the runs of its cohort, with itself, before a search has chosen.

    Raises:
        UserError: as `session.train`; or memory does not suffice for all of them.
        Stopped: a stop was requested and the checkpoints are written.
    """
    with contextlib.ExitStack() as locked, outcome.Memory() as memory:
        runs = _members(run, others, locked)
        if len(runs) > 1:
            runs = _prepare(runs, run, context, signals)
        return _train(runs, run, context) if len(runs) > 1 else None
    raise UserError(
        f"memory does not suffice to train up to {len(others)} runs together ({memory.ran_out}): set cohorts: false in "
        "the config"
    )


def _members(run: ActiveRun, others: Sequence[Settings], locked: contextlib.ExitStack) -> list[ActiveRun]:
    """The runs of a cohort that no process trains and that have no result, ordered as `others`, with their locks."""
    top = Path(str(run.folder).removesuffix(run.settings.run.folder))
    hashed, runs = prepared.features_hash(run.manifest), []
    # With a search they are the seeds of one point.
    searched = any(other.protocol.search for other in others)
    pick = choice.make(others[0], top, hashed) if searched else None
    for settings in (other.chosen(pick.chosen, pick.hash) if pick else other for other in others):
        folder = top / settings.run.folder
        if settings.run == run.settings.run:
            runs.append(run)
        elif not finished.has_result(folder, settings, hashed):
            lock = Lock(folder)
            locked.callback(lock.release)
            try:
                # Its result may have come before the lock.
                if lock.acquire() and not finished.has_result(folder, settings, hashed):
                    clear(folder, folder / checkpoint.FOLDER)
                    runs.append(ActiveRun(settings, folder, lock, run.manifest, guest=True))
            except OSError as error:
                notice(error)
    return runs


def _prepare(
    runs: Sequence[ActiveRun], run: ActiveRun, context: Context, signals: Signals
) -> list[ActiveRun]:
    """The runs, of these, that can take their next step with `run`, each with the data that it has alone.

    The others are left to their own jobs: one that has another number of samples in a part, such as in another fold;
    one whose checkpoint is of another step; and one that cannot begin, which its job explains.
    """
    world = context.world
    pace = Pace(run.settings.protocol, world, lambda: signals.stop, members=len(runs))

    def begin(each: ActiveRun) -> int:
        """Begin a run; the step that it is at."""
        clock = Clock(world.device, each.settings.protocol.warmup, frozenset())
        each.begin(world, clock, signals, pace)
        return each.trainer.step if each.trainer else 0

    first = run.load(world.device)
    step = begin(run)

    def joins(other: ActiveRun) -> bool:
        problem = other.load(world.device)
        if not fits(problem, first):
            return False
        share(problem, first)
        return begin(other) == step

    members = []
    for each in runs:
        try:
            if each is run or joins(each):
                members.append(each)
                if finished.AGAIN in os.environ and each is not run:
                    # Its model and predictions will be new before its own job puts the new record in its place.
                    (each.folder / RECORD).unlink(missing_ok=True)
                continue
        except (UserError, OSError) as error:
            notice(error)
        each.lock.release(untouched=True)
    started.demand_one_code(world)
    names = [f"{each.settings.run.protocol}/seed{each.settings.run.seed}" for each in members]
    for name, each in zip(names, members, strict=True):
        each.cohort |= {*names} - {name}
    pace.begin(step)
    return members


def _train(runs: Sequence[ActiveRun], own: ActiveRun, context: Context) -> str:
    """Train runs that have begun, write their records and return the status of the job's own run."""
    training = {number: run.trainer for number, run in enumerate(runs) if isinstance(run.trainer, Trainer)}
    fault: UserError | None = None
    status = ""
    began = time.perf_counter()
    before_s = (time.monotonic() - context.clock_s) / len(runs)

    def ended(number: int, error: Exception | None) -> None:
        """A run's training has ended: write its record."""
        nonlocal fault, status
        run, trainer, start = runs[number], training.pop(number), time.perf_counter()
        if isinstance(error, UserError):
            # The other runs' own jobs report their errors.
            fault = error if run is own else fault
            return

        def end() -> None:
            if error is not None:
                raise error

        result = outcome.result_of(trainer, began, end)
        run.share_s = before_s + (trainer.share_s or 0.0) + time.perf_counter() - start
        results.write(run, result, context, [context.of_rank(trainer)])
        # Memory for the others.
        run.problem = run.trainer = None
        if run is own:
            status = result.status
        else:
            print(f"{run.settings.run.folder}: {result.status}", flush=True)

    cohort.train(training, ended)
    if fault is not None:
        raise fault
    return status
