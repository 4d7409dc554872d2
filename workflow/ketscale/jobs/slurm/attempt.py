"""A time limit is no failure of a job that got further than it was: SLURM requeues it before.

Snakemake counts how often a job has failed, and the executor has no other way (no issue known). A job that is requeued has not
failed, so a run may take many times the limit of its partition. One that got no further, by a checkpoint or by runs of it that ended, ends
at its limit, and counts.
"""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

from ketscale import grid
from ketscale.errors import UserError
from ketscale.jobs.slurm import queue
from ketscale.measure import record
from ketscale.training import checkpoint
from ketscale.words import notice

# So long before its time limit a job is requeued; the controller of a busy cluster takes seconds to answer.
_BEFORE_S = 20.0
# How often it is asked, since the limit may be changed; and near the limit, where the run may still get further.
_RETRY_S, _SOON_S = 300.0, 5.0


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
        remaining_s = queue.remaining_s(self._job) - _BEFORE_S
        self._rests_until = now + min(max(remaining_s, _SOON_S), _RETRY_S)
        if remaining_s <= 0 and (step(self._folder) > self._began_at or self._completed_other_runs()):
            self._rests_until = math.inf
            try:
                queue.ask("scontrol", "requeue", self._job)
                notice("its job is requeued, since its time limit is near and it got further")
            except UserError as error:
                notice(f"its job cannot be requeued before its time limit, so this attempt counts: {error}")

    def _completed_other_runs(self) -> bool:
        """Whether another run of the job has ended since this attempt began."""
        above = (folder for folder in self._folder.absolute().parents if folder.name == grid.RUNS)
        runs = next(above, self._folder)
        with contextlib.suppress(UserError):
            began = time.time() - queue.seconds(
                queue.ask("squeue", "-h", "-j", self._job, "-o", "%M").strip()
            )
            # Most are older, and need not be read. One that was touched is new, but ended before.
            new = [path for path in runs.rglob(grid.RECORD) if path.stat().st_mtime > began]
            records = [one for path in new if (one := record.read(path).record)]
            return any(
                each.slurm_job_id == self._job and each.stopped.timestamp() > began for each in records
            )
        return False


def step(folder: Path) -> int:
    """The step up to which any checkpoint in a run's folder goes; 0 if there is none."""
    return max(checkpoint.steps(folder).values(), default=0)
