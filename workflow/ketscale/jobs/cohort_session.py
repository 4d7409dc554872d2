"""A cohort, from the settings of its runs to their records: one process trains all of them; see `training.cohort`.

Each run has its own folder, lease, history, trained model and record. The checkpoint is one file for all that are still
in training, in the folder of the first of them, so that they go on from the same step.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ketscale.config import Data, Settings
from ketscale.engines.circuits.fused import routes_taken
from ketscale.errors import UserError
from ketscale.files import clear
from ketscale.grid import HISTORY
from ketscale.jobs import finished, outcome, session, supervise
from ketscale.jobs.lease import Lease
from ketscale.jobs.session import Here
from ketscale.jobs.signals import Signals
from ketscale.jobs.slurm import queue
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.training import checkpoint, cohort
from ketscale.training.cohort import States
from ketscale.training.loop import Stopped, Trainer
from ketscale.training.pace import Pace
from ketscale.training.stack import Stack, share


@dataclass
class Run:
    """A run of the cohort.

    name: what the records of the others call it. lost: how often it resumed, and what that cost. share_s: its share of
    the process's time so far.
    """

    settings: Settings
    folder: Path
    lease: Lease
    name: str
    lost: dict[str, Any]
    share_s: float = 0.0


@contextlib.contextmanager
def runs(
    settings: Settings, folder: Path, lease: Lease, others: Sequence[Settings], hashed: str | None
) -> Iterator[list[Run]]:
    """A run whose lease is held, and those of the others that nobody trains and this call has not finished.

    Theirs are leased for the length of the block.
    """
    results = Path(str(folder).removesuffix(settings.run.folder))
    found = []
    with contextlib.ExitStack() as leases:
        for each in others:
            own = each.run == settings.run
            place = folder if own else results / each.run.folder
            held = lease if own else Lease(place, job_over=queue.job_over)
            if not own:
                if not held.try_acquire():
                    continue
                leases.callback(held.release)
                if finished.in_this_call(place, each, hashed):
                    held.finished = True
                    continue
            name = f"{each.run.protocol}/seed{each.run.seed}"
            lost = {"resumed": 0, "lost_s": session.lost_s(held, None)}
            found.append(Run(each, place, held, name, lost))
        yield found


def train(
    settings: Settings, members: Sequence[Run], manifest: Path | None, world: World, signals: Signals
) -> str:
    """Train runs of one shape together, write their records, and return the status of the one with these settings.

    Raises:
        UserError: as `session.train`; or memory does not suffice for all of them.
        Stopped: a stop was requested and the checkpoint is written.
    """
    with outcome.Memory() as memory:
        own = next(number for number, member in enumerate(members) if member.settings.run == settings.run)
        return _Cohort(members, own, manifest, world, signals).train()
    raise UserError(
        f"memory does not suffice to train {len(members)} runs together ({memory.ran_out}): set cohorts: false in the "
        "config"
    )


class _Cohort:
    def __init__(
        self, members: Sequence[Run], own: int, manifest: Path | None, world: World, signals: Signals
    ) -> None:
        self._members, self._own, self._world = members, own, world
        first = members[0].settings
        self._here = Here.of(first, world)
        start = time.perf_counter()
        self._data: Data = session.read(first, manifest)
        self._data_s = time.perf_counter() - start
        problems: list[Problem] = []
        for member in members:
            clear(member.folder, member.folder / "lease", member.folder / checkpoint.FOLDER)
            problems.append(session.build(member.settings, self._data, world.device))
            share(problems[-1], problems[0])
        session.demand_one_code(world)
        pace = Pace(first.protocol, world, lambda: signals.stop, signals.save, together=True)
        self._stack = Stack(problems, [member.settings.protocol for member in members], pace)
        self._asked: States = {}
        self._trainers = {
            number: self._trainer(number, problem, signals) for number, problem in enumerate(problems)
        }
        self._restore()
        trainer = self._trainers[0]
        pace.begin(trainer.step, trainer.trained_s)
        self._training = set(self._trainers)
        self._counted = self._here.clock_s
        self._refused: UserError | None = None
        self._status = ""

    def train(self) -> str:
        """The status of the job's own run."""
        self._began = time.perf_counter()
        try:
            cohort.train(self._trainers, self._stack, self._asked, self._save, self._ended)
        except Stopped as stopped:
            for number in self._training:
                supervise.leave_note(self._members[number].folder, f"{supervise.why_stopped()}; {stopped}")
            raise
        if self._refused is not None:
            raise self._refused
        return self._status

    def _trainer(self, number: int, problem: Problem, signals: Signals) -> Trainer:
        member = self._members[number]
        settings, protocol = member.settings, member.settings.protocol
        return Trainer(
            problem,
            self._world,
            Clock(self._world.device, protocol.warmup, frozenset()),
            protocol,
            settings.run.batch,
            settings.run.seed,
            save=partial(self._asked.__setitem__, number),
            stop_requested=lambda: signals.stop,
            save_requested=signals.save,
            report=session.seldom(partial(session.write_history, member.folder / HISTORY)),
            progress=number == 0 and sys.stderr.isatty(),
            metrics=settings.family.metrics,
            member=self._stack.members[number],
        )

    def _key(self, numbers: Sequence[int]) -> str:
        """The key of a checkpoint of these runs; that of a single one is the one that it has alone."""
        hashes = [self._members[number].settings.hash for number in numbers]
        return checkpoint.identify(*hashes, self._data.features_hash or "", finished.code_hash())

    def _save(self, states: States) -> None:
        found = []
        for number, state in states.items():
            member = self._members[number]
            member.lease.check()
            found.append({**state, **member.lost, "saved": time.time()})
        folder = self._members[next(iter(states))].folder
        checkpoint.save(folder, self._key(list(states)), found[0] if len(found) == 1 else {"runs": found})

    def _restore(self) -> None:
        folder, key = self._members[0].folder, self._key(list(self._trainers))
        saved = checkpoint.load(folder, key)
        if saved is None:
            session.say_if_anew(folder, key)
            return
        path = checkpoint.path_of(folder, key)
        states = saved.get("runs")
        if not isinstance(states, list) or len(states) != len(self._trainers):
            raise checkpoint.unusable(path, "it is of other runs")
        for number, state in enumerate(states):
            member = self._members[number]
            member.lost = session.restore(self._trainers[number], state, member.lease, path)

    def _ended(self, number: int, error: Exception | None) -> None:
        """A run's training has ended: write its record."""
        self._count()
        self._training.discard(number)
        member, trainer = self._members[number], self._trainers[number]
        if isinstance(error, UserError):
            # The other runs' own jobs refuse them again.
            self._refused = error if number == self._own else self._refused
            return

        def end() -> None:
            if error is not None:
                raise error

        ended = outcome.ended(trainer, self._began, end)
        member.lease.check()
        session.finish(
            member.settings,
            member.folder,
            self._data,
            trainer,
            ended,
            self._here,
            [self._here.of_rank(trainer, ended)],
            {"data_s": self._data_s, **outcome.timing(trainer.clock, trainer, ended)},
            {**member.lost, "routes": routes_taken(self._stack.template)},
            cohort=[other.name for other in self._members if other is not member],
            share_s=member.share_s,
        )
        member.lease.finished = True
        if number == self._own:
            self._status = ended.status
        else:
            print(f"{member.settings.run.folder}: {ended.status}", flush=True)

    def _count(self) -> None:
        """Give each run that is in training its share of the time since the last count."""
        now = time.monotonic()
        for number in self._training:
            self._members[number].share_s += (now - self._counted) / len(self._training)
        self._counted = now
