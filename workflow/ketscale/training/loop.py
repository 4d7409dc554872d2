"""The trainer: shards global batches, reduces gradients exactly, stops early, checkpoints and resumes.

Every decision depends only on (settings, seed, step) and on numbers that are equal on all ranks, never on time or on
the rank. So a run's arithmetic is the same for any number of ranks and after any interruption. Only the step after
which a run ends may depend on time, if its protocol limits it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from ketscale.config import Metric, Protocol
from ketscale.errors import UserError
from ketscale.measure.clock import Clock
from ketscale.measure.form import FIRST_LOSSES
from ketscale.parallel.world import World, shard
from ketscale.problems.problem import Problem
from ketscale.spans import recording
from ketscale.training import lbfgs, optimiser, parts
from ketscale.training.flat import state_of
from ketscale.training.history import History
from ketscale.training.pace import Look, Pace
from ketscale.training.stack import Stack
from ketscale.training.step import Stepper
from ketscale.training.step_sums import StepSums
from ketscale.training.training import Training

# What a training asks for and what it is sent: the indices of a step's global batch for the step's `StepSums`, or the
# name of a split for the model's outputs on it.
Course: TypeAlias = Generator[torch.Tensor | str, Any, None]

# The sums for an epoch's row of the history, at the start of the epoch.
_EPOCH = {"loss": 0.0, "norm": 0.0, "own_norm": 0.0, "count": 0, "steps": 0}


class Diverged(Exception):
    """The loss or the gradient stopped being finite; the message names the step."""


class TimedOut(Exception):
    """The protocol's time was over before training was; the message names the step. Every rank raises it there."""


class Stopped(Exception):
    """A stop was requested (SIGTERM) and the checkpoint is written."""


class Trainer(Training):
    """Trains a `Problem` as a protocol says.

    Args:
        problem: on the world's device and in its final precision.
        protocol: that of the run's simulator (see `Protocol.for_run`).
        batch: global batch size.
        save: writes a checkpoint of the given state (called on rank 0 only, and never if the protocol is timed).
        stop_requested: whether this rank should stop.
        history: gets a row after every epoch.
        metrics: those of the problem's family, which say in which direction each is better.
        pace: of all runs that the process trains together (see `training.cohort`); None if this one trains alone. Times
            of a step are those of all of them, so that none are kept; of an epoch's time the history has a share.

    Attributes:
        share_s: its share of the time in which it was trained together with others; None if it trains alone.
    """

    def __init__(
        self,
        problem: Problem,
        world: World,
        clock: Clock,
        protocol: Protocol,
        batch: int,
        seed: int,
        save: Callable[[dict[str, Any]], None],
        stop_requested: Callable[[], bool],
        history: History,
        metrics: Sequence[Metric] = (),
        pace: Pace | None = None,
    ) -> None:
        super().__init__(problem, world, clock, batch, history)
        self.protocol, self.seed = protocol, seed
        self._save = save
        # This comes first, so that a batch that the sampler rejects raises an error before the ranks communicate.
        self.steps_per_epoch = problem.sampler.steps_per_epoch(batch)
        self.stepper: Stepper | Stack = Stepper(problem, world, protocol)
        self._place = 0  # its row in the optimiser
        self.pace = pace or Pace(protocol, world, stop_requested)
        self.share_s = 0.0 if pace else None
        self.schedule = optimiser.Schedule(protocol)
        self.total_steps = protocol.steps or (protocol.epochs or 0) * self.steps_per_epoch
        self.tested = protocol.by_epochs
        self._validated = self.tested and "validation" in problem.splits
        for setting in ("early_stopping", "plateau"):
            if self.tested and not self._validated and getattr(protocol, setting) is not None:
                raise UserError(
                    f"{setting}: needs validation, but the workload has no such samples; give it some, or leave {setting} out"
                )
        self._second_order = protocol.optimiser == "l-bfgs"
        # The curvature of l-bfgs is inside SciPy, and the times of a timed run are those of one process without a break.
        self.no_checkpoints = "l-bfgs" if self._second_order else "a timed run" if protocol.timed else ""
        self._maximised = {metric.name for metric in metrics if metric.better == "up"}
        self._monitor = protocol.early_stopping.monitor if protocol.early_stopping else "loss"
        self.best: dict[str, Any] = {"epoch": -1, "value": math.inf, "state": None}
        self._waited = 0
        self._finished = False
        self._epoch = dict(_EPOCH)
        self._pending: list[StepSums] = []
        self._agreed = Look()
        # The training before this process resumed the run.
        self.trained_s = 0.0

    def run(self) -> None:
        """Train to the end of the protocol; with epochs and validation samples, then restore the best weights.

        Raises:
            Diverged: a loss, gradient or validation metric is not finite; names the step.
            UserError: the optimiser cannot work with this batch or these samples, or the monitored metric is never
                defined.
            TimedOut: the protocol's time is over, and training is not.
            Stopped: a stop was requested and the checkpoint is written.
        """
        self.pace.begin(self.step, self.trained_s)
        if self._second_order:
            # The points that its last search tries in vain are in no step, so that steps need not fill the time.
            self._run_lbfgs()
            self._drive(self.course())
            return
        with self.clock.loop():
            self._drive(self.course())

    def course(self) -> Course:
        """The training as a generator, whose requests `run` answers one after the other.

        `training.cohort` answers the requests of several runs at once. Raises as `run` does.
        """
        while self.step < self.total_steps and not self._finished:
            yield from self._train_epoch()
        if self.best["state"] is not None:
            self.problem.model.load_state_dict(self.best["state"])
        elif self._validated:
            raise UserError(
                f"early_stopping.monitor: {self._monitor} is undefined for the validation samples in every epoch, so no "
                "weights are the best: monitor loss"
            )

    def join(self, stack: Stack, place: int) -> None:
        """Take the following steps as the member of a stack at this place."""
        stack.optimiser.load_state_dict(self.stepper.optimiser.state_dict(self._place), place)
        self.stepper, self._place = stack, place
        # All members look up after the next step, and then together.
        self._agreed = Look()

    def _drive(self, course: Course) -> None:
        """Answer the requests of a course by this run's own steps and outputs."""
        answer: StepSums | torch.Tensor | None = None
        assert isinstance(self.stepper, Stepper)
        while True:
            try:
                request = course.send(answer)
            except StopIteration:
                return
            if isinstance(request, str):
                answer = self.outputs(request)
                continue
            full = min(self.batch, self.problem.sampler.samples or self.batch)
            with recording(self.clock.start_step(self.step, partial=len(request) < full)):
                answer = self.stepper.take(request, self.step)
            self.clock.stop_step(preparing=self.stepper.preparing)

    def _train_epoch(self) -> Course:
        epoch, position = divmod(self.step, self.steps_per_epoch)
        start = self._elapsed_s()
        full = position == 0
        self.problem.train()
        for indices in self.problem.sampler.batches(self.seed, epoch, self.batch, position):
            if self.step == self.total_steps:
                break
            self._note((yield indices))
            last = self.step % self.steps_per_epoch == 0 or self.step == self.total_steps
            if len(self._pending) >= self._agreed.after or last:
                self._agree(at_boundary=last)
        full = full and self.step % self.steps_per_epoch == 0
        seconds = self._elapsed_s() - start if full else None
        with self.clock.aside():
            yield from self._end_epoch(epoch, seconds)

    def _elapsed_s(self) -> float:
        """Seconds since some moment, as far as they were spent on this run."""
        return time.perf_counter() if self.share_s is None else self.share_s

    def _run_lbfgs(self) -> None:
        """Each iteration is an epoch and a step.

        A separable problem's parts are minimised each by itself, and each evaluation counts.
        """
        samples = self.problem.sampler.samples
        if samples is None:
            raise UserError(
                "optimiser l-bfgs needs the same loss in every evaluation, but this problem draws new samples in "
                "every step: use adam"
            )
        if self.batch < samples:
            raise UserError(
                f"optimiser l-bfgs uses all {samples} training samples at once: set batch to {samples} or more"
            )
        everything = torch.arange(samples)
        start = time.perf_counter()
        current: StepSums
        stepper = self.stepper
        assert isinstance(stepper, Stepper)

        def sums() -> torch.Tensor:
            nonlocal current
            current = stepper.differentiate(everything, self.step)
            return self.world.allreduce(current.sums)

        def evaluate() -> float:
            total = sums()
            return self._loss(current, total)

        def iterated_parts(losses: torch.Tensor) -> bool:
            nonlocal current
            own = losses.to(current.sums) * (self.world.rank == 0)
            current = dataclasses.replace(current, sums=own)
            return iterated()

        def iterated() -> bool:
            nonlocal start
            self.clock.stop_step()
            self._note(current)
            self._agree(at_boundary=True)
            seconds = time.perf_counter() - start
            with self.clock.aside():
                self._drive(self._end_epoch(self.step - 1, seconds))
            start = time.perf_counter()
            self.clock.start_step(self.step)
            self.problem.train()
            return self.step < self.total_steps and not self._finished

        self.problem.train()
        self.clock.start_step(self.step)
        if self.problem.separable:
            parts.minimise(stepper.parameters, sums, iterated_parts, self.total_steps, self.world)
        else:
            message = lbfgs.minimise(stepper.parameters, evaluate, iterated, self.total_steps, self.world)
            if not self.step:
                raise Diverged(f"l-bfgs found no better point than the start: SciPy says {message}")
        self._finished = True

    def _note(self, step: StepSums) -> None:
        """Count a finished step; its sums wait for the next agreement."""
        self._pending.append(step)
        self.step += 1
        self.samples_seen += step.samples

    def _loss(self, step: StepSums, total: torch.Tensor) -> float:
        """The loss of a step, from the sums over all ranks."""
        with torch.no_grad():
            loss = float(self.problem.combine(total, step.count))
        return loss if step.penalty is None else loss + float(step.penalty)

    def _agree(self, at_boundary: bool) -> None:
        """Share the losses of the pending steps, look for NaN and requests, and checkpoint when due.

        Rank 0 makes the decisions that may depend on time; they change no number.
        """
        self.clock.settle()
        with self.clock.aside():
            self._count_pending(at_boundary)

    def _count_pending(self, at_boundary: bool) -> None:
        look = self.pace.look(self.step)
        requests = torch.tensor(
            [look.stop, look.save, look.over, look.after], dtype=torch.float64, device=self.world.device
        )
        sums = torch.stack([pending.sums for pending in self._pending])
        wide = torch.complex128 if sums.is_complex() else torch.float64
        shared = self.world.allreduce(torch.cat([sums.to(wide).reshape(-1), requests.to(wide)]))
        stop, save, over, after = shared[-4:].real.tolist()
        self._agreed = Look(stop > 0, save > 0, over > 0, int(after))
        totals = shared[:-4].reshape(sums.shape)
        for step, total in zip(self._pending, totals, strict=True):
            loss, gradient_norm = self._loss(step, total), float(step.norm)
            for what, value in (("loss", loss), ("gradient norm", gradient_norm)):
                if not math.isfinite(value):
                    raise Diverged(f"the {what} is {value} at step {step.step}")
            if step.step < FIRST_LOSSES:
                self.losses.append(loss)
            self._epoch["loss"] += loss * step.count
            self._epoch["norm"] += gradient_norm
            self._epoch["own_norm"] += float(step.own_norm)
            self._epoch["count"] += step.count
            self._epoch["steps"] += 1
        self._pending.clear()
        # At the end of an epoch the checkpoint must include the validation result, so it is written after it.
        if not at_boundary:
            self._end_if_over()
            self._checkpoint_on_request()

    def _end_if_over(self) -> None:
        """End training here if its time is over; if it is finished anyway, the limit does not matter."""
        if self._agreed.over and self.step < self.total_steps and not self._finished:
            raise TimedOut(
                f"its time of {self.protocol.limit_s:g} s (limit_s) was over after step {self.step} of "
                f"{self.total_steps}"
            )

    def _end_epoch(self, epoch: int, seconds: float | None) -> Course:
        sums = self._epoch
        row: dict[str, Any] = {
            "epoch": epoch,
            "step": self.step,
            "train_loss": sums["loss"] / sums["count"],
            "gradient_norm": sums["norm"] / sums["steps"],
            "own_gradient_norm": sums["own_norm"] / sums["steps"],
            "learning_rate": self.stepper.optimiser.learning_rates[self._place],
            "epoch_s": seconds,
        }
        self._epoch = dict(_EPOCH)
        steady = self.clock.unsteady <= self.clock.count - sums["steps"]
        if seconds is not None and self.share_s is None and steady:
            self.clock.epochs_s.append(seconds)
        values: dict[str, Any] = {"loss": math.nan}
        if self.tested and not self._validated:
            # The last weights count.
            self.best = {**self.best, "epoch": epoch}
        elif self.tested:
            start = time.perf_counter()
            values = self._validation((yield "validation"))
            if self.share_s is None:
                self.clock.validations_s.append(time.perf_counter() - start)
            row |= {f"validation_{name}": value for name, value in values.items()}
            self._judge(epoch, values)
        rates = self.stepper.optimiser.learning_rates
        rates[self._place] = self.schedule.step(rates[self._place], epoch, values["loss"])
        self.history.append(row)
        self._end_if_over()
        if self.step < self.total_steps and not self._finished:
            self._checkpoint_on_request()

    def _validation(self, outputs: torch.Tensor) -> dict[str, Any]:
        """The metrics of the validation samples that cost little, and the monitored one."""
        values = self.problem.metrics("validation", outputs, full=False)
        if self._monitor not in values:
            full = self.problem.metrics("validation", outputs, full=True)
            values[self._monitor] = full[self._monitor]
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise Diverged(f"the {name} on the validation samples is {value} after step {self.step}")
        return values

    def _judge(self, epoch: int, values: Mapping[str, Any]) -> None:
        """Keep the weights if they are the best, and see whether to stop early.

        An epoch whose monitored metric is None, which means undefined, is no better than any other.
        """
        stopping, value = self.protocol.early_stopping, values[self._monitor]
        if value is not None and self._monitor in self._maximised:
            value = -value
        better = value is not None and value < self.best["value"]
        self._waited = 0 if better else self._waited + 1
        # The last weights of a separable problem count: the best of the validation's parts say nothing of the others.
        if better or self.problem.separable:
            value = value if better else self.best["value"]
            self.best = {"epoch": epoch, "value": value, "state": state_of(self.problem.model)}
        self._finished = stopping is not None and self._waited >= stopping.patience

    def outputs(self, split: str) -> torch.Tensor:
        """The model's outputs for the samples of a split, which the ranks share; the same rows on every rank."""
        own = shard(torch.arange(self.problem.splits[split]), self.world.rank, self.world.ranks)
        parts = [
            self.problem.outputs(split, part) for part in own.split(max(1, self.batch // self.world.ranks))
        ]
        return self.world.gather_rows(torch.cat(parts))

    @property
    def replayed(self) -> int:
        """See `Training.replayed`."""
        return self.stepper.replayed if isinstance(self.stepper, Stepper) else 0

    def summary(self) -> Mapping[str, Any]:
        """How many epochs it took, and which was the best."""
        return {"epochs": len(self.history), "best_epoch": self.best["epoch"], "chosen": {}, "tried": 1}

    def _checkpoint_on_request(self) -> None:
        if not (self._agreed.save or self._agreed.stop):
            return
        self.save()
        if self._agreed.stop:
            self.world.barrier()
            how = "the checkpoint is written, run the same command to resume"
            if self.no_checkpoints:
                how = f"{self.no_checkpoints} has no checkpoints, so the same command starts again"
            raise Stopped(f"stopped at step {self.step}; {how}")

    def save(self) -> None:
        """Write a checkpoint, on rank 0."""
        if self.world.rank == 0 and not self.no_checkpoints:
            self._save(self.state())
        self.pace.saved(self.step)

    def state(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on.

        Raises:
            RuntimeError: there are steps whose losses are not counted yet.
        """
        if self._pending:
            raise RuntimeError(f"a state after step {self.step}, with {len(self._pending)} uncounted losses")
        return {
            "model": state_of(self.problem.model),
            "optimiser": self.stepper.optimiser.state_dict(self._place),
            "schedule": dict(self.schedule.state),
            "step": self.step,
            "losses": self.losses,
            "history": self.history.state(),
            "best": self.best,
            "waited": self._waited,
            "epoch": self._epoch,
            "trained_s": self.pace.trained_s,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a `state`; the following steps are bitwise those of an uninterrupted run."""
        self.problem.model.load_state_dict(state["model"])
        self.stepper.optimiser.load_state_dict(state["optimiser"], self._place)
        self.schedule.state = state["schedule"]
        self.step = state["step"]
        self.losses, self.best = state["losses"], state["best"]
        self.history.restore(state["history"])
        self._waited, self._epoch, self.trained_s = state["waited"], state["epoch"], state["trained_s"]
