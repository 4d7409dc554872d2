"""A run in the process that trains it: its data and its problem, and the checkpoint from which it resumes."""

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path
from typing import Any

import torch

from ketscale.config import Data, Settings
from ketscale.errors import UserError
from ketscale.jobs import locks, prepared
from ketscale.jobs.provenance import code_hash, sources_hash
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.problems.samplers import SAMPLERS
from ketscale.training import checkpoint
from ketscale.training.fit import Fit
from ketscale.training.history import History
from ketscale.training.loop import Trainer
from ketscale.training.pace import Pace
from ketscale.training.training import Training
from ketscale.words import notice


class Signals:
    """A request that the trainer sees between steps: to stop (SIGTERM, SIGINT).

    A second Ctrl-C does not wait for the end of the step.
    """

    def __init__(self) -> None:
        """At first SIGTERM ends the process at once, in whatever library it waits for the other ranks."""
        self.stop = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def heed_stop(self) -> None:
        """From now on there may be something to save, so SIGTERM and SIGINT are requests."""
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)

    def _ask_to_stop(self, signum: int, frame: Any) -> None:
        self.stop = True
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclasses.dataclass
class ActiveRun:
    """A run that this process may write, and what there is of it so far.

    Attributes:
        manifest: that of the workload's prepared data; None for a family that prepares nothing.
        data: what a record says of the data; only the problem has their content.
        data_s: the seconds to read them.
        problem, trainer: None until there is one, and if memory ran out before.
        cohort: the runs with which a process trained it together, as PROTOCOL/seedN.
        guest: whether the process is another run's job.
        share_s: its share of the time of a process that trains several runs; None if it is alone.
        resumed: how often it resumed from a checkpoint.
    """

    settings: Settings
    folder: Path
    lock: locks.Lock
    manifest: Path | None
    data: Data = dataclasses.field(init=False)
    data_s: float = 0.0
    problem: Problem | None = None
    trainer: Training | None = None
    cohort: set[str] = dataclasses.field(default_factory=set)
    guest: bool = False
    share_s: float | None = None
    resumed: int = 0

    def __post_init__(self) -> None:
        # The hash is known even if the data do not fit in memory: a record belongs to them.
        self.data = Data(features_hash=prepared.features_hash(self.manifest))

    @property
    def key(self) -> str:
        """The key of its checkpoint: a run never resumes from one of other settings, features or code."""
        return checkpoint.identify(self.settings.hash, self.data.features_hash or "", code_hash())

    def load(self, device: torch.device) -> Problem:
        """Read the data and build the problem; raises as `read` and `build` do."""
        self.problem = self.trainer = None  # there may be memory for one only
        start = time.perf_counter()
        data = read(self.settings, self.manifest)
        self.data_s = time.perf_counter() - start
        self.data = dataclasses.replace(data, content=None)
        self.problem = build(self.settings, data, device)
        return self.problem

    def begin(self, world: World, clock: Clock, signals: Signals, pace: Pace | None = None) -> None:
        """Make the training, and resume from its checkpoint or start from the beginning. Every rank calls this.

        For the arguments see `Trainer`.

        Raises:
            UserError: the history of its checkpoint cannot be used, or a search has nothing to choose by.
        """
        settings = self.settings
        assert self.problem is not None
        history = History(checkpoint.history_of(self.folder, self.key) if world.rank == 0 else None)
        if settings.fitted:
            self.trainer = Fit(self.problem, world, clock, settings.run.batch, history)
        else:
            self.trainer = Trainer(
                self.problem,
                world,
                clock,
                settings.protocol,
                settings.run.batch,
                settings.run.seed,
                save=self._save,
                stop_requested=lambda: signals.stop,
                history=history,
                metrics=settings.family.metrics,
                pace=pace,
            )
        if settings.trial_of is not None:
            # What is chosen by must not have seen a test.
            self.trainer.measured = ("validation",)
            if "validation" not in self.problem.splits:
                raise UserError(
                    f"protocols.{settings.trial_of}.search chooses by validation samples, and {settings.run.workload} has "
                    "none: give it some, or leave the search out"
                )
        self._resume(self.trainer, world)

    def _save(self, state: dict[str, Any]) -> None:
        """Write a checkpoint."""
        also = {"resumed": self.resumed, "cohort": sorted(self.cohort)}
        checkpoint.save(self.folder, self.key, {**state, **also})

    def _resume(self, trainer: Training, world: World) -> None:
        # Rank 0 loads it: on a shared disk other nodes may still see an older checkpoint, or none.
        saved = world.gather(self._checkpoint(trainer) if world.rank == 0 else None)[0]
        if saved is None:
            return
        assert isinstance(trainer, Trainer)
        try:
            trainer.restore(saved)
        except UserError as error:  # its history is missing or damaged
            if world.rank == 0:
                checkpoint.set_aside(checkpoint.path_of(self.folder, self.key))
            raise UserError(f"{error}; its checkpoint is put aside: run it again") from None
        self.resumed = saved["resumed"] + 1
        self.cohort.update(saved["cohort"])

    def _checkpoint(self, trainer: Training) -> dict[str, Any] | None:
        """The state in the checkpoint; None, and what there is of another one is said, if the run starts from the beginning."""
        folder, start = self.folder, "starting from the beginning"
        try:
            saved = None if trainer.no_checkpoints else checkpoint.load(folder, self.key)
        except MemoryError:
            raise UserError(f"{folder}: memory does not suffice to read its checkpoint") from None
        except UserError as error:
            aside = checkpoint.set_aside(checkpoint.path_of(folder, self.key))
            notice(f"{error}: it is now {aside.name}; {start}")
            saved = None
        if saved is None:
            checkpoint.history_of(folder, self.key).unlink(missing_ok=True)
            if checkpoint.others(folder, self.key):
                notice(f"the checkpoint in {folder} belongs to other settings, features or code: {start}")
            if trainer.no_checkpoints and self.lock.former is not None:
                reason = f"{trainer.no_checkpoints} has no checkpoints"
                notice(f"this run was stopped before it had ended; {reason}: {start}")
        return saved


def read(settings: Settings, manifest: Path | None) -> Data:
    """The workload's data as the run reads them.

    Raises:
        UserError: the family prepares data but there is no manifest, a file does not match the manifest, or the data
            were prepared with other settings.
    """
    if settings.family.read is None:
        return Data()
    if manifest is None:
        raise UserError(
            f"workload {settings.run.workload} needs its prepared data: give --features FILE (`ketscale prepare --help`)"
        )
    data = settings.family.read(settings, manifest)
    if prepared.of_other_settings(manifest, settings.workload):
        name = settings.run.workload
        raise UserError(
            f"{manifest}: prepared with other settings of workload {name}; run the rule prepare again, or "
            f"`ketscale prepare {name} --config FILE` with the run's config"
        )
    return data


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The run's problem on `device`, in the protocol's precision, with weights drawn from the run's seed.

    Weights are always drawn in fp32 on the CPU, so that they are the same for every precision and device.

    Raises:
        UserError: model, simulator and data do not fit together.
    """
    torch.manual_seed(settings.run.seed)
    problem: Problem = settings.family.build(settings, data, device)
    if not isinstance(problem.sampler, SAMPLERS[settings.sampler]):
        raise TypeError(
            f"family {settings.family.name} declares the sampler {settings.sampler}, but has {problem.sampler}"
        )
    problem.convert(device, torch.float64 if settings.protocol.precision == "fp64" else torch.float32)
    return problem


def demand_one_code(world: World) -> None:
    """Raise if code was edited while the ranks imported it: what trains would be unknown. Every rank calls this.

    Raises:
        UserError: the sources are not those that every rank has started with.
    """
    hashes = world.gather((code_hash(), sources_hash()))
    if len({each for pair in hashes for each in pair}) > 1:
        raise UserError("the package's code was changed while this run started: start it again")
