"""A cohort, from the settings of its runs to their records: one process trains all of them; see `training.cohort`.

Each run has its own folder, lease, history, trained model and record. The checkpoint is one file for all that are still
in training, in the folder of the first of them, so that they go on from the same step.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ketscale.config import Settings
from ketscale.errors import UserError
from ketscale.files import clear
from ketscale.jobs import choice, outcome, prepared, results, started, supervise
from ketscale.jobs.ownership import finished
from ketscale.jobs.ownership.lease import Lease
from ketscale.jobs.signals import Signals
from ketscale.jobs.slurm import queue
from ketscale.jobs.started import StartedRun
from ketscale.jobs.surroundings import Surroundings
from ketscale.measure.clock import Clock
from ketscale.training import checkpoint, cohort
from ketscale.training.cohort import States
from ketscale.training.loop import Stopped, Trainer
from ketscale.training.pace import Pace
from ketscale.training.stack import Stack, fits, share


def train(
    run: StartedRun, others: Sequence[Settings], surroundings: Surroundings, signals: Signals
) -> str | None:
    """Train a run together with others of its shape that nobody trains and this call of Snakemake has not finished.

    Write their records and return the status of this one; None, and nothing is done, if there are no such others.

    Args:
        run: its lease is held, and its data are not read yet.
        others: the runs of its cohort, with itself, before a search has chosen.

    Raises:
        UserError: as `session.train`; or memory does not suffice for all of them.
        Stopped: a stop was requested and the checkpoint is written.
    """
    with contextlib.ExitStack() as leases, outcome.Memory() as memory:
        runs = _together(run, others, surroundings, leases)
        return _Cohort(runs, run, surroundings, signals).train() if len(runs) > 1 else None
    raise UserError(
        f"memory does not suffice to train up to {len(others)} runs together ({memory.ran_out}): set cohorts: false in "
        "the config"
    )


def _together(
    run: StartedRun, others: Sequence[Settings], surroundings: Surroundings, leases: contextlib.ExitStack
) -> list[StartedRun]:
    """The runs to be trained together, in the order of `others`, with their leases; one or none if there are no others.

    Each has the data that it has alone. A run of which a part has another number of samples, such as in another fold,
    takes other steps: it is left to its own job.
    """
    top = Path(str(run.folder).removesuffix(run.settings.run.folder))
    hashed = prepared.features_hash(run.manifest)
    wanted = [
        each
        for each in (choice.resolved(other, top) for other in others)
        if each.run == run.settings.run or not finished.in_this_call(top / each.run.folder, each, hashed)
    ]
    if len(wanted) == 1:
        return []
    device = surroundings.world.device
    first = run.load(device)
    runs = []
    for each in wanted:
        if each.run == run.settings.run:
            runs.append(run)
            continue
        place = top / each.run.folder
        other = StartedRun(each, place, Lease(place, job_over=queue.job_over), run.manifest)
        problem = other.load(device)
        if not fits(problem, first):
            continue
        share(problem, first)
        if other.lease.try_acquire():
            leases.callback(other.lease.release)
            runs.append(other)
    return runs


class _Cohort:
    """Trains some runs, of which this process was started for `own`."""

    def __init__(
        self, runs: Sequence[StartedRun], own: StartedRun, surroundings: Surroundings, signals: Signals
    ) -> None:
        self._runs, self._own, self._surroundings = runs, own, surroundings
        for run in runs:
            clear(run.folder, run.folder / "lease", run.folder / checkpoint.FOLDER)
        world = surroundings.world
        started.demand_one_code(world)
        protocols = [run.settings.protocol for run in runs]
        pace = Pace(protocols[0], world, lambda: signals.stop, signals.save, together=True)
        self._stack = Stack([run.problem for run in runs if run.problem is not None], protocols, pace)
        self._asked: States = {}
        key = started.key_of(runs)
        for number, run in enumerate(runs):
            run.begin(
                world,
                Clock(world.device, protocols[number].warmup, frozenset()),
                signals,
                partial(self._asked.__setitem__, number),
                key,
                progress=number == 0 and sys.stderr.isatty(),
                member=self._stack.members[number],
            )
            run.share_s = 0.0
        started.resume(runs, world)
        self._trainers: dict[int, Trainer] = {
            number: run.trainer for number, run in enumerate(runs) if isinstance(run.trainer, Trainer)
        }
        pace.begin(self._trainers[0].step, self._trainers[0].trained_s)
        self._training = set(self._trainers)
        self._counted = surroundings.clock_s
        self._refused: UserError | None = None
        self._status = ""

    def train(self) -> str:
        """The status of the job's own run."""
        self._began = time.perf_counter()
        try:
            cohort.train(self._trainers, self._stack, self._asked, self._save, self._ended)
        except Stopped as stopped:
            for number in self._training:
                supervise.leave_note(self._runs[number].folder, f"{supervise.why_stopped()}; {stopped}")
            raise
        if self._refused is not None:
            raise self._refused
        return self._status

    def _save(self, states: States) -> None:
        started.save([self._runs[number] for number in states], list(states.values()))

    def _ended(self, number: int, error: Exception | None) -> None:
        """A run's training has ended: write its record."""
        self._count()
        self._training.discard(number)
        run, trainer = self._runs[number], self._trainers[number]
        if isinstance(error, UserError):
            # The other runs' own jobs refuse them again.
            self._refused = error if run is self._own else self._refused
            return

        def end() -> None:
            if error is not None:
                raise error

        ended = outcome.ended(trainer, self._began, end)
        run.lease.check()
        results.write(
            run,
            ended,
            self._surroundings,
            [self._surroundings.of_rank(trainer, ended)],
            cohort=[
                f"{other.settings.run.protocol}/seed{other.settings.run.seed}"
                for other in self._runs
                if other is not run
            ],
            evaluated=self._stack.template,
        )
        if run is self._own:
            self._status = ended.status
        else:
            print(f"{run.settings.run.folder}: {ended.status}", flush=True)

    def _count(self) -> None:
        """Give each run that is in training its share of the time since the last count."""
        now = time.monotonic()
        for number in self._training:
            run = self._runs[number]
            run.share_s = (run.share_s or 0.0) + (now - self._counted) / len(self._training)
        self._counted = now
