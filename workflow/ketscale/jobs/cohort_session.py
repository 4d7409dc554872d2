"""A cohort, from the settings of its runs to their records: one process trains all of them; see `training.cohort`.

Each run has its own folder, lock, history, checkpoint, trained model and record, as if it were alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ketscale.config import Settings
from ketscale.errors import UserError
from ketscale.files import clear
from ketscale.grid import RECORD
from ketscale.jobs import choice, finished, outcome, prepared, results, started, supervise
from ketscale.jobs.locks import Lock
from ketscale.jobs.signals import Signals
from ketscale.jobs.started import StartedRun
from ketscale.jobs.surroundings import Surroundings
from ketscale.measure.clock import Clock
from ketscale.training import checkpoint, cohort
from ketscale.training.loop import Stopped, Trainer
from ketscale.training.pace import Pace
from ketscale.training.stack import fits, share
from ketscale.words import say


def train(
    run: StartedRun, others: Sequence[Settings], surroundings: Surroundings, signals: Signals
) -> str | None:
    """Train a run together with others of its shape that nobody trains and that have no result.

    Write its record, keep those of the others for their own jobs, and return the status of this one; None, and nothing is done, if there are no such others.

    Args:
        run: its lock is held, and its data are not read yet.
        others: the runs of its cohort, with itself, before a search has chosen.

    Raises:
        UserError: as `session.train`; or memory does not suffice for all of them.
        Stopped: a stop was requested and the checkpoints are written.
    """
    with contextlib.ExitStack() as locked, outcome.Memory() as memory:
        runs = _together(run, others, surroundings, signals, locked)
        return _train(runs, run, surroundings) if len(runs) > 1 else None
    raise UserError(
        f"memory does not suffice to train up to {len(others)} runs together ({memory.ran_out}): set cohorts: false in "
        "the config"
    )


def _together(
    run: StartedRun,
    others: Sequence[Settings],
    surroundings: Surroundings,
    signals: Signals,
    locked: contextlib.ExitStack,
) -> list[StartedRun]:
    """The runs to be trained together, in the order of `others`, with their locks; one or none if there are no others.

    Each has the data that it has alone. A run of which a part has another number of samples, such as in another fold,
    takes other steps: it is left to its own job, and so is one that cannot begin, which its job explains.
    """
    top = Path(str(run.folder).removesuffix(run.settings.run.folder))
    hashed = prepared.features_hash(run.manifest)
    wanted = [
        each
        for each in (choice.resolved(other, top) for other in others)
        if each.run == run.settings.run or not finished.has_result(top / each.run.folder, each, hashed)
    ]
    if len(wanted) == 1:
        return []
    world = surroundings.world
    pace = Pace(run.settings.protocol, world, lambda: signals.stop, signals.save, together=True)
    first = run.load(world.device)
    runs = []
    for each in wanted:
        place = top / each.run.folder
        if each.run == run.settings.run:
            other = run
        else:
            other = StartedRun(each, place, Lock(place), run.manifest, guest=True)
            problem = other.load(world.device)
            if not fits(problem, first):
                continue
            share(problem, first)
            try:
                if not other.lock.acquire():
                    continue
            except OSError as error:
                say(error)
                continue
            locked.callback(other.lock.release)
            if finished.has_result(place, each, hashed):
                continue
            clear(place, place / checkpoint.FOLDER)
            if finished.AGAIN in os.environ:
                (place / RECORD).unlink(missing_ok=True)
        clock = Clock(world.device, each.protocol.warmup, frozenset())
        try:
            other.begin(world, clock, signals, progress=other is run and sys.stderr.isatty(), pace=pace)
        except (UserError, OSError) as error:
            if other is run:
                raise
            say(error)
            continue
        runs.append(other)
    started.demand_one_code(world)
    names = [f"{other.settings.run.protocol}/seed{other.settings.run.seed}" for other in runs]
    steps = [other.trainer.step if other.trainer else 0 for other in runs]
    if any(steps):
        say(f"trains {len(runs)} runs together: {_begun(names, steps)}")
    for name, other in zip(names, runs, strict=True):
        other.cohort |= {*names} - {name}
    pace.begin(min(steps))
    return runs


def _begun(names: Sequence[str], steps: Sequence[int]) -> str:
    """From which step each run goes on, in words."""
    at: dict[int, list[str]] = {}
    for name, step in sorted(zip(names, steps, strict=True), key=lambda one: -one[1]):
        at.setdefault(step, []).append(name)
    words = {step: f"from step {step}" if step else "from the beginning" for step in at}
    return "; ".join(f"{', '.join(of)} {words[step]}" for step, of in at.items())


def _train(runs: Sequence[StartedRun], own: StartedRun, surroundings: Surroundings) -> str:
    """Train runs that have begun, write their records and return the status of the job's own run."""
    training = {number: run.trainer for number, run in enumerate(runs) if isinstance(run.trainer, Trainer)}
    refused: UserError | None = None
    status = ""
    began = time.perf_counter()
    before_s = (time.monotonic() - surroundings.clock_s) / len(runs)

    def ended(number: int, error: Exception | None) -> None:
        """A run's training has ended: write its record."""
        nonlocal refused, status
        run, trainer, start = runs[number], training.pop(number), time.perf_counter()
        if isinstance(error, UserError):
            # The other runs' own jobs refuse them again.
            refused = error if run is own else refused
            return

        def end() -> None:
            if error is not None:
                raise error

        made = outcome.ended(trainer, began, end)
        run.share_s = before_s + (trainer.share_s or 0.0) + time.perf_counter() - start
        results.write(run, made, surroundings, [surroundings.of_rank(trainer, made)])
        # Memory for the others.
        run.problem = run.trainer = None
        if run is own:
            status = made.status
        else:
            print(f"{run.settings.run.folder}: {made.status}", flush=True)

    try:
        cohort.train(training, ended)
    except Stopped:
        for number, trainer in training.items():
            supervise.leave_note(runs[number].folder, f"{supervise.why_stopped()}; {trainer.stopped()}")
        raise
    if refused is not None:
        raise refused
    return status
