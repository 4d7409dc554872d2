"""A cohort, from the settings of its runs to their records: one process trains all of them; see `training.cohort`.

Each run has its own folder, lease, history, trained model and record. The checkpoint is one file for all that are still
in training, in the folder of the first of them, so that they go on from the same step.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ketscale.config import Data, Settings
from ketscale.engines.circuits.fused import routes_taken
from ketscale.errors import UserError
from ketscale.files import clear
from ketscale.jobs import finished, outcome, prepared, session, supervise
from ketscale.jobs.lease import Lease
from ketscale.jobs.session import Here
from ketscale.jobs.signals import Signals
from ketscale.jobs.slurm import queue
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.training import checkpoint, cohort
from ketscale.training.cohort import States
from ketscale.training.history import History
from ketscale.training.loop import Stopped, Trainer
from ketscale.training.pace import Pace
from ketscale.training.stack import Stack, fits, share


@dataclass
class Run:
    """A run of the cohort.

    name: what the records of the others call it. data: its own, without their content. data_s: what reading them took.
    lost: how often it resumed, and what that cost. share_s: its share of the process's time so far.
    """

    settings: Settings
    folder: Path
    lease: Lease
    name: str
    problem: Problem
    data: Data
    data_s: float
    lost: dict[str, Any]
    share_s: float = 0.0


def train(
    settings: Settings,
    folder: Path,
    lease: Lease,
    others: Sequence[Settings],
    manifest: Path | None,
    world: World,
    signals: Signals,
) -> str | None:
    """Train a run, whose lease is held, together with others of its shape that nobody trains and this call has not
    finished; write their records and return the status of this one. None, and nothing is done, if there are no such.

    others: of its cohort, with itself.

    Raises:
        UserError: as `session.train`; or memory does not suffice for all of them.
        Stopped: a stop was requested and the checkpoint is written.
    """
    here = Here.of(settings, world)
    with contextlib.ExitStack() as leases, outcome.Memory() as memory:
        members = _members(settings, folder, lease, others, manifest, world.device, leases)
        if len(members) < 2:
            return None
        own = next(number for number, member in enumerate(members) if member.lease is lease)
        return _Cohort(members, own, here, signals).train()
    raise UserError(
        f"memory does not suffice to train up to {len(others)} runs together ({memory.ran_out}): set cohorts: false in "
        "the config"
    )


def _members(
    settings: Settings,
    folder: Path,
    lease: Lease,
    others: Sequence[Settings],
    manifest: Path | None,
    device: torch.device,
    leases: contextlib.ExitStack,
) -> list[Run]:
    """The runs to be trained together, in the order of `others`, with their leases; one or none if there are no others.

    Each has the data that it has alone. A run of which a part has another number of samples, such as in another fold,
    takes other steps: it is left to its own job.
    """
    results = Path(str(folder).removesuffix(settings.run.folder))
    hashed = prepared.features_hash(manifest)
    wanted = [
        each
        for each in others
        if each.run == settings.run or not finished.in_this_call(results / each.run.folder, each, hashed)
    ]
    if len(wanted) == 1:
        return []
    first = _posed(settings, manifest, device)
    members = []
    for each in wanted:
        if each.run == settings.run:
            members.append(_run(settings, folder, lease, first))
            continue
        posed = _posed(each, manifest, device)
        if not fits(posed.problem, first.problem):
            continue
        share(posed.problem, first.problem)
        place = results / each.run.folder
        held = Lease(place, job_over=queue.job_over)
        if held.try_acquire():
            leases.callback(held.release)
            members.append(_run(each, place, held, posed))
    return members


class _Posed(NamedTuple):
    """A run's problem, its data without their content, and the seconds that reading them took."""

    problem: Problem
    data: Data
    data_s: float


def _posed(settings: Settings, manifest: Path | None, device: torch.device) -> _Posed:
    start = time.perf_counter()
    data = session.read(settings, manifest)
    data_s = time.perf_counter() - start
    return _Posed(session.build(settings, data, device), replace(data, content=None), data_s)


def _run(settings: Settings, folder: Path, lease: Lease, posed: _Posed) -> Run:
    name = f"{settings.run.protocol}/seed{settings.run.seed}"
    lost = {"resumed": 0, "lost_s": session.lost_s(lease, None)}
    return Run(settings, folder, lease, name, *posed, lost)


class _Cohort:
    def __init__(self, members: Sequence[Run], own: int, here: Here, signals: Signals) -> None:
        self._members, self._own, self._here, self._world = members, own, here, here.world
        for member in members:
            clear(member.folder, member.folder / "lease", member.folder / checkpoint.FOLDER)
        session.demand_one_code(here.world)
        pace = Pace(
            members[0].settings.protocol, here.world, lambda: signals.stop, signals.save, together=True
        )
        protocols = [member.settings.protocol for member in members]
        self._stack = Stack([member.problem for member in members], protocols, pace)
        self._asked: States = {}
        self._began_as = self._key(range(len(members)))
        self._trainers = {number: self._trainer(number, signals) for number in range(len(members))}
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

    def _trainer(self, number: int, signals: Signals) -> Trainer:
        member = self._members[number]
        settings, protocol = member.settings, member.settings.protocol
        return Trainer(
            member.problem,
            self._world,
            Clock(self._world.device, protocol.warmup, frozenset()),
            protocol,
            settings.run.batch,
            settings.run.seed,
            save=partial(self._asked.__setitem__, number),
            stop_requested=lambda: signals.stop,
            save_requested=signals.save,
            history=History(checkpoint.history_of(member.folder, self._began_as), member.lease.check),
            progress=number == 0 and sys.stderr.isatty(),
            metrics=settings.family.metrics,
            member=self._stack.members[number],
        )

    def _key(self, numbers: Sequence[int]) -> str:
        """The key of a checkpoint of these runs; that of a single one is the one that it has alone."""
        members = [self._members[number] for number in numbers]
        # All read one manifest.
        features = members[0].data.features_hash or ""
        return checkpoint.identify(
            *(member.settings.hash for member in members), features, finished.code_hash()
        )

    def _save(self, states: States) -> None:
        found = []
        for number, state in states.items():
            member = self._members[number]
            member.lease.check()
            found.append({**state, **member.lost, "saved": time.time()})
        folder = self._members[next(iter(states))].folder
        checkpoint.save(folder, self._key(list(states)), found[0] if len(found) == 1 else {"runs": found})

    def _restore(self) -> None:
        folder, key = self._members[0].folder, self._began_as
        saved = checkpoint.load(folder, key)
        if saved is None:
            session.start_anew([member.folder for member in self._members], key)
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
            member.data,
            trainer,
            ended,
            self._here,
            [self._here.of_rank(trainer, ended)],
            {"data_s": member.data_s, **outcome.timing(trainer.clock, trainer, ended)},
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
