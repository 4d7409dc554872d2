"""Decides when a training looks up from its steps: to save a checkpoint, to stop, or because its time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ketscale.config import Protocol
from ketscale.parallel.world import World

# Each agreement of the ranks on losses, NaN and requests is a message, so they agree only every AGREE_STEPS steps. If
# steps are slow they agree sooner, so that a request to stop waits no longer than about AGREE_S seconds.
AGREE_STEPS = 10
AGREE_S = 2.0


@dataclass(frozen=True)
class Look:
    """What there is to do after a step.

    Attributes:
        stop: save a checkpoint and stop.
        save: save a checkpoint.
        over: the protocol's time is over.
        after: how many steps to take before the next look.
    """

    stop: bool = False
    save: bool = False
    over: bool = False
    after: int = 1


class Pace:
    """Makes decisions by time and requests, never by numbers, which they do not change.

    Runs that are trained together have one pace, so that they look up and save after the same step.

    Args:
        stop_requested: whether this rank should stop.
        members: how many runs share the process; their checkpoints are as many files, so as many times rarer.
    """

    def __init__(
        self,
        protocol: Protocol,
        world: World,
        stop_requested: Callable[[], bool],
        members: int = 1,
    ) -> None:
        self._protocol, self._rank = protocol, world.rank
        self._stop_requested = stop_requested
        # With one run of one rank on a CPU an agreement costs nothing.
        single = world.ranks == 1 and world.device.type == "cpu" and members == 1
        self._most_steps = 1 if single else AGREE_STEPS
        self._checkpoint_steps = protocol.checkpoint_steps * members
        self._look = Look()
        self.begin()

    def begin(self, step: int = 0, trained_s: float = 0.0) -> None:
        """Training begins, or resumes from a checkpoint of this step after so many seconds of training."""
        # Training before this process resumed the run counts too.
        self._before_s, self._step, self._saved_step = trained_s, step, step
        self._began = self._looked = self._saved_s = time.perf_counter()

    @property
    def trained_s(self) -> float:
        """Seconds of training so far."""
        return self._before_s + time.perf_counter() - self._began

    def look(self, step: int) -> Look:
        """What this rank asks for after `step` steps; the same for every run that asks after this step.

        Only rank 0 goes by the time; requests may reach any rank.
        """
        if step == self._step:
            return self._look
        first = self._rank == 0
        now = time.perf_counter()
        step_s = (now - self._looked) / (step - self._step)
        self._looked, self._step = now, step
        limit_s = self._protocol.limit_s
        overdue = (
            step - self._saved_step >= self._checkpoint_steps
            or now - self._saved_s >= 60 * self._protocol.checkpoint_minutes
        )
        self._look = Look(
            stop=self._stop_requested(),
            save=first and overdue,
            over=first and limit_s is not None and self.trained_s >= limit_s,
            after=max(1, min(self._most_steps, int(AGREE_S / step_s))) if first else 0,
        )
        return self._look

    @property
    def rested(self) -> bool:
        """Whether another checkpoint, out of turn, costs little after the last one."""
        return self._step - self._saved_step >= self._protocol.checkpoint_steps

    def saved(self, step: int) -> None:
        """A checkpoint of this step was written, of one of the runs."""
        self._saved_step, self._saved_s = step, time.perf_counter()
