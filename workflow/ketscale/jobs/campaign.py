"""The life of a call of Snakemake: what it checks and writes down before its first job, and gives back at its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import cohorts, driver, finished, launch
from ketscale.jobs import snakemake_internals as internals
from ketscale.jobs.locks import Lock
from ketscale.jobs.slurm import queue, submission
from ketscale.words import say

if TYPE_CHECKING:
    from ketscale.dag import Jobs
    from ketscale.jobs.slurm.requests import Requests


class Campaign:
    """A call of Snakemake that trains runs of a config."""

    def __init__(self, workflow: Any, study: Jobs, requests: Requests) -> None:
        """Begin nothing yet."""
        self._workflow, self._study, self._requests = workflow, study, requests
        self._runs: list[Run] = []
        self._lock: Lock | None = None
        if not study.in_job:
            os.environ.pop(cohorts.VARIABLE, None)
            os.environ.pop(finished.AGAIN, None)

    def begin(self) -> None:
        """Note this call and its runs. Before any is submitted, stop if the cluster would reject one or never start it.

        Raises:
            SystemExit: it cannot begin; says why.
        """
        try:
            if not self._workflow.deployment_settings.deployment_method:
                launch.check_package()
            self._lock = driver.begin()
            # A run that has its result is trained again only for those who say so.
            settings = self._workflow.dag_settings
            if settings.forceall or settings.forcerun or settings.forcetargets:
                os.environ[finished.AGAIN] = "1"
            last = len(self._study.runs)
            jobs = [job for job in internals.planned(self._workflow) if "seed" in job.wildcards_dict]
            planned = [self._study.run_of(job.wildcards) for job in jobs]
            self._runs = sorted(planned, key=lambda run: self._study.order.get(run, last))
            self._start()
        except (UserError, OSError) as error:
            self._let_go()
            sys.exit(f"Error: {error}")
        internals.lift_limit(self._workflow)

    def end(self) -> None:
        """Give the folder back, and say what came out."""
        cohorts.forget()
        if self._lock is None:
            return
        self._let_go()
        page = Path(self._study.results, "report.html")
        if page.exists() and page.stat().st_mtime >= driver.BEGAN.stat().st_mtime:
            print("\n".join([*self._study.answers(), f"report: {page}"]), file=sys.stderr)
        if any(not Path(self._study.results, run.path).exists() for run in self._runs):
            files = self._workflow.overwrite_configfiles
            option = driver.option(Path(os.path.relpath(files[0]))) if files else ""
            say(f"`ketscale status{option}` shows what is left; the same command runs it again")

    def _start(self) -> None:
        """Prepare what the runs of this call need, and watch them."""
        jobs = internals.planned(self._workflow)
        submitted = self._study.scheduled() and not all(self._workflow.is_local(job.rule) for job in jobs)
        if submitted:
            queue.ask("sinfo", "-h")
        if self._study.config.cohorts:
            self._plan_cohorts()
        if submitted:
            submission.begin(self._workflow)

    def _plan_cohorts(self) -> None:
        """Write down which runs of this call are trained together."""
        study = self._study
        # Runs of a job group take turns in its allocation.
        cores, place = min(study.host, self._workflow.resource_settings.cores or study.host), lambda run: ""
        if study.scheduled():
            cores, place = 1, self._requests.pack_of
        everything = [*study.runs, *(run for run in self._runs if run not in study.order)]
        planned = cohorts.plan(map(study.config.settings, everything), cores, place, set(self._runs))
        cohorts.write(Path(study.results), planned)

    def _let_go(self) -> None:
        """Give the lock of the folder back."""
        if self._lock is not None:
            self._lock.finished = True
            self._lock.release()
            self._lock = None
