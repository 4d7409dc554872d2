"""What is used of Snakemake (9.19 to 9.x) beyond its documentation, each with its reason and, where there is one, its
issue there; a test looks whether it is still there.

Imports next to nothing: the Snakefile imports it at every start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Snakemake's own folder in that of a study.
FOLDER = Path(".snakemake")
# Snakemake's limit of submissions if the user gives none: jobs, in seconds.
_DEFAULT_LIMIT = (100, 1)


def remake(workflow: Any, path: str) -> None:
    """Have a file made again, whatever Snakemake's notes and the times of files say, by the call that is planned.

    The option --forcerun would also make it a target, and triggers are a fixed list. The jobs of the call do not ask: their
    own process plans only its targets.
    """
    workflow.dag.forcefiles.add(path)


def planned(workflow: Any) -> list[Any]:
    """The jobs of this call, once they are planned."""
    return list(workflow.dag.needrun_jobs())


def make_one_job(workflow: Any, group: str, component: str) -> None:
    """Apply what a profile sets for the group `component` to a job group: its runs do not depend on one another.

    Snakemake groups values of a wildcard by their number alone (issue 113).
    """
    workflow.parent_groupids[group] = component


def complete_settings(workflow: Any) -> None:
    """In the process of a job group, set what Snakemake does not pass on to it.

    If a run fails the others continue (issue 2508), and there is no limit of submissions (see `lift_limit`).
    """
    workflow.execution_settings.keep_going = True
    workflow.scheduling_settings.max_jobs_per_timespan = None


def lift_limit(workflow: Any) -> None:
    """Remove Snakemake's limit of 100 submissions a second; one that the user gave stays.

    It leaves one more timer behind whenever a job ends, and each timer wakes the scheduler once a second. After a hundred
    runs that takes a tenth of two cores, while runs are being timed (pull request 3744 is about the same timers).
    """
    limiter = workflow.scheduler.job_rate_limiter
    if limiter and (limiter.max_jobs, limiter.timespan) == _DEFAULT_LIMIT:
        workflow.scheduler.job_rate_limiter = None
