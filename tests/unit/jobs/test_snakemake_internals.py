"""What is used of Snakemake beside its documented interface is still there."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from ketscale.jobs import snakemake_internals as internals

pytest.importorskip("snakemake")


def test_everything_that_is_used_of_snakemake_is_there():
    """If this fails, Snakemake has changed: look at each function of the module, and at the rules."""
    # Its modules import each other, and this order works.
    from snakemake import api
    from snakemake.dag import DAG
    from snakemake.jobs import Job
    from snakemake.scheduling.job_scheduler import JobRateLimiter, JobScheduler
    from snakemake.settings.types import ExecutionSettings, SchedulingSettings

    assert "forcefiles" in DAG.__init__.__code__.co_names and callable(DAG.needrun_jobs)
    assert isinstance(api.Workflow.parent_groupids, property)
    assert "wildcards_dict" in Job.__slots__
    for settings, name in ((ExecutionSettings, "keep_going"), (SchedulingSettings, "max_jobs_per_timespan")):
        assert name in {field.name for field in dataclasses.fields(settings)}
    assert "job_rate_limiter" in JobScheduler.__init__.__code__.co_names
    assert {"_executor", "_user_kill"} <= {*JobScheduler.__init__.__code__.co_names}
    assert isinstance(JobRateLimiter.max_jobs, property) and isinstance(JobRateLimiter.timespan, property)


@pytest.mark.parametrize("limit, left", [((100, 1), False), ((100, 60), True), ((5, 1), True)])
def test_only_the_usual_limit_of_submissions_is_lifted(limit, left):
    limiter = SimpleNamespace(max_jobs=limit[0], timespan=limit[1])
    workflow = SimpleNamespace(scheduler=SimpleNamespace(job_rate_limiter=limiter))
    internals.lift_limit(workflow)
    assert (workflow.scheduler.job_rate_limiter is limiter) == left
