"""An attempt of a job that got further than the last one, but not to the end, is none that counts: SLURM requeues it.

Snakemake counts how often a job has failed. A job that is requeued has not, so a run may take many times the limit of its
partition. An attempt that got no further ends at its time limit, and is tried again as often as the profile says.
"""

from __future__ import annotations

import math
import time
from datetime import datetime
from pathlib import Path

from ketscale import grid, strict_json
from ketscale.errors import UserError
from ketscale.files import read_bytes
from ketscale.jobs.slurm import queue
from ketscale.training import checkpoint
from ketscale.words import say

# So long before its time limit a job is requeued, or at the last part of a short one; the controller of a busy cluster
# takes seconds to answer.
_BEFORE_S, _LAST_PART = 30.0, 0.25
# The limit may be changed meanwhile, and SLURM may not answer.
_AGAIN_S = 300.0
# Near the limit the run may still get further, but a controller that is asked once a second has much to do.
_SOON_S = 5.0


class Attempt:
    """This attempt of a SLURM job at a run. Only for a job that Snakemake has submitted; `look` does nothing in others."""

    def __init__(self, folder: Path, job: str) -> None:
        self._folder, self._job = folder, job
        self._began_at = step(folder)
        self._rests_until = -math.inf

    def look(self) -> None:
        """Have the job requeued if its time limit is near and it got further. Call this often while the run trains."""
        now = time.monotonic()
        if now < self._rests_until:
            return
        times = queue.times(self._job)
        if times is None:
            self._rests_until = now + _AGAIN_S
            return
        used, limit = times
        left = limit - used - min(_BEFORE_S, _LAST_PART * limit)
        if left > 0:
            self._rests_until = now + min(left, _AGAIN_S)
        elif step(self._folder) > self._began_at or self._has_finished_others(used):
            self._rests_until = math.inf
            self._requeue()
        else:
            self._rests_until = now + _SOON_S

    def _requeue(self) -> None:
        try:
            queue.ask("scontrol", "requeue", self._job)
            said = (
                "its job is requeued, since its time limit is near and it got further than the attempt before"
            )
        except UserError as error:
            said = f"its job cannot be requeued before its time limit, so this attempt counts: {error}"
        say(said)

    def _has_finished_others(self, used_s: float) -> bool:
        """Whether another run of the job has ended since this attempt began."""
        begun = time.time() - used_s
        runs = next(folder for folder in self._folder.absolute().parents if folder.name == grid.RUNS)
        for path in runs.rglob(grid.RECORD):
            try:
                # Most are older, and need not be read. One that was given back after a requeue is new, but ended before.
                if path.stat().st_mtime > begun:
                    record = strict_json.loads(read_bytes(path))
                    ended = datetime.fromisoformat(record["stopped"]).timestamp()
                    if record["slurm_job_id"] == self._job and ended > begun:
                        return True
            except (OSError, ValueError, LookupError, TypeError):
                continue  # it has just been deleted, or is damaged
        return False


def step(folder: Path) -> int:
    """The step up to which any checkpoint in a run's folder goes; 0 if there is none."""
    return max(checkpoint.steps(folder).values(), default=0)
