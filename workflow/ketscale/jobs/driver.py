"""The Snakemake that works in a folder: its lock there, what it does before its first job and after its last, and how it is
called.

Snakemake's own locks name no process and outlive a killed one, so the profiles switch them off (`nolock`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import process
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import cohorts, finished, launch, locks
from ketscale.jobs import snakemake_internals as internals
from ketscale.jobs.locks import Lock
from ketscale.jobs.slurm import queue, submission
from ketscale.words import counted, say

if TYPE_CHECKING:
    from ketscale.dag import Jobs
    from ketscale.jobs.slurm.requests import Requests

# What a call keeps in Snakemake's own folder; its lock is there too.
FOLDER = internals.FOLDER / "ketscale"
# A file that is as old as the last call.
BEGAN = FOLDER / "began"
# A new call waits no longer for what a killed one has left in the queue.
_CANCELLED_S, _POLL_S = 180.0, 5.0
# The checkout that this package is in, if it is in one.
CHECKOUT = Path(__file__).resolve().parents[3]


def begin() -> Lock:
    """Take the lock of this folder, end what a killed call has left in SLURM's queue, and name this call.

    Raises:
        UserError: another Snakemake works here, or SLURM does not end the jobs of a killed one.
    """
    lock = Lock(FOLDER)
    if not lock.acquire():
        raise UserError(
            f"another Snakemake works in this folder ({locks.last(FOLDER)}): let it end, or end it"
        )
    if lock.former is not None:
        say(f"the last Snakemake here was killed ({lock.former})")
        if queue.available():
            _cancel_jobs()
    # Snakemake would restore what an earlier call has left there over what is here now.
    shutil.rmtree(FOLDER.parent / "backups", ignore_errors=True)
    os.environ[process.CALL] = os.urandom(16).hex()
    BEGAN.touch()
    return lock


def _cancel_jobs() -> None:
    """End this folder's jobs in the queue; their runs save a checkpoint."""
    jobs = _in_queue()
    if not jobs:
        return
    queue.cancel(jobs)
    say(f"cancelled its {counted(len(jobs), 'job')} in the queue ({', '.join(job.id for job in jobs[:10])})")
    end = time.monotonic() + _CANCELLED_S
    while waiting := _in_queue():
        if time.monotonic() >= end:
            raise UserError(f"{counted(len(waiting), 'job')} of it cannot be cancelled; see `squeue --me`")
        time.sleep(_POLL_S)


def _in_queue() -> list[queue.Job]:
    """This folder's jobs, without those that SLURM clears up after: a dead node may do so for hours."""
    return [job for job in queue.jobs(Path()) if job.state != "COMPLETING"]


class Campaign:
    """A call of Snakemake that trains runs of a config."""

    def __init__(self, workflow: Any, study: Jobs, requests: Requests) -> None:
        """Begin nothing yet."""
        self._workflow, self._study, self._requests = workflow, study, requests
        self._runs: list[Run] = []
        self._lock: Lock | None = None
        files = workflow.overwrite_configfiles
        self._status = f"ketscale status{option(Path(os.path.relpath(files[0]))) if files else ''}"
        if not study.in_job:
            os.environ.pop(cohorts.VARIABLE, None)
            os.environ.pop(finished.AGAIN, None)

    def begin(self) -> None:
        """Note this call and its runs. Before any is submitted, stop if the cluster would reject one or never start it.

        Raises:
            SystemExit: it cannot begin; says why.
        """
        workflow, study = self._workflow, self._study
        jobs = internals.planned(workflow)
        try:
            if not workflow.deployment_settings.deployment_method:
                launch.check_package()
            self._lock = begin()
            # A run that has its result is trained again only for those who say so.
            settings = workflow.dag_settings
            if settings.forceall or settings.forcerun or settings.forcetargets:
                os.environ[finished.AGAIN] = "1"
            self._runs = [study.run_of(job.wildcards) for job in jobs if "seed" in job.wildcards_dict]
            submits = study.scheduled() and not all(workflow.is_local(job.rule) for job in jobs)
            if submits:
                queue.ask("sinfo", "-h")
            if study.config.cohorts:
                self._plan_cohorts()
            if submits:
                submission.begin(workflow)
        except (UserError, OSError) as error:
            self._let_go()
            sys.exit(f"Error: {error}")
        internals.lift_limit(workflow)

    def end(self) -> None:
        """Give the folder back, and say what came out."""
        cohorts.forget()
        if self._lock is None:
            return
        self._let_go()
        page = Path(self._study.results, "report.html")
        if page.exists() and page.stat().st_mtime >= BEGAN.stat().st_mtime:
            print("\n".join([*self._study.answers(), f"report: {page}"]), file=sys.stderr)
        if any(not Path(self._study.results, run.path).exists() for run in self._runs):
            say(f"`{self._status}` shows what is left; the same command runs it again")

    def _plan_cohorts(self) -> None:
        """Write down which runs of this call are trained together."""
        study = self._study
        # Runs of a job group take turns in its allocation.
        cores, place = min(study.host, self._workflow.resource_settings.cores or study.host), lambda run: ""
        if study.scheduled():
            cores, place = 1, self._requests.pack_of
        everything = dict.fromkeys([*study.runs, *self._runs])
        planned = cohorts.plan(map(study.config.settings, everything), cores, place, set(self._runs))
        cohorts.write(Path(study.results), planned)
        if planned:
            several = sum(map(len, planned))
            say(
                f"{several} runs are trained several at a time: `{self._status} --follow` shows how far they are"
            )

    def _let_go(self) -> None:
        """Give the lock of the folder back."""
        if self._lock is not None:
            self._lock.finished = True
            self._lock.release()
            self._lock = None


def option(configfile: Path) -> str:
    """The option by which a command of `ketscale` is about a config, as it is typed behind it."""
    return "" if configfile == Path("config.yaml") else f" --config {shlex.quote(str(configfile))}"


def command(configfile: Path) -> str:
    """The call of Snakemake that trains what is left of a config, as it is typed in this folder.

    Paths of records may be appended: --configfile, which reads all names after it, is not the last option.
    """
    words, profile = ["snakemake"], "slurm" if queue.available() else "profiles/local"
    here = Path("Snakefile").exists() or Path("workflow/Snakefile").exists()
    if not here and (CHECKOUT / "Snakefile").exists():
        words += ["-s", str(CHECKOUT / "Snakefile")]
        if not Path("profiles", Path(profile).name).exists():
            profile = str(CHECKOUT / "profiles" / Path(profile).name)
    if configfile != Path("config.yaml"):
        words += ["--configfile", str(configfile)]
    return shlex.join([*words, "--profile", profile])
