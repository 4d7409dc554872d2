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
    from snakemake.jobs import GroupJob, Job
    from snakemake.logging import LoggerManager
    from snakemake.scheduling.job_scheduler import JobRateLimiter, JobScheduler
    from snakemake.settings.types import ExecutionSettings, SchedulingSettings
    from snakemake_executor_plugin_slurm import Executor

    assert "forcefiles" in DAG.__init__.__code__.co_names and callable(DAG.needrun_jobs)
    assert isinstance(api.Workflow.parent_groupids, property)
    assert callable(LoggerManager.get_log_handlers) and "logger_manager" in api.Workflow.__annotations__
    assert callable(DAG.reason) and "wildcards_dict" in Job.__slots__
    for settings, name in ((ExecutionSettings, "keep_going"), (SchedulingSettings, "max_jobs_per_timespan")):
        assert name in {field.name for field in dataclasses.fields(settings)}
    assert "job_rate_limiter" in JobScheduler.__init__.__code__.co_names
    assert "_executor" in JobScheduler.__init__.__code__.co_names
    assert isinstance(JobRateLimiter.max_jobs, property) and isinstance(JobRateLimiter.timespan, property)
    assert all("_attempt" in kind.__slots__ for kind in (Job, GroupJob)) and isinstance(
        GroupJob.groupid, property
    )
    assert "report_job_error" in Executor._report_job_error_threadsafe.__code__.co_names


def test_a_setting_that_snakemake_no_longer_has_is_an_error():
    workflow = SimpleNamespace(execution_settings=SimpleNamespace(), scheduling_settings=SimpleNamespace())
    with pytest.raises(AttributeError, match="no setting keep_going"):
        internals.complete_settings(workflow)


@pytest.mark.parametrize("limit, left", [((100, 1), False), ((100, 60), True), ((5, 1), True)])
def test_only_the_usual_limit_of_submissions_is_lifted(limit, left):
    limiter = SimpleNamespace(max_jobs=limit[0], timespan=limit[1])
    workflow = SimpleNamespace(scheduler=SimpleNamespace(job_rate_limiter=limiter))
    internals.lift_limit(workflow)
    assert (workflow.scheduler.job_rate_limiter is limiter) == left


def test_submissions_that_wait_hold_up_no_others():
    """By threads of the pool in which SLURM's executor submits, which has two."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    from snakemake_executor_plugin_slurm import Executor

    assert "_job_submission_executor" in Executor.__post_init__.__code__.co_names
    assert internals._THREADS in Executor.__post_init__.__code__.co_consts
    over = Event()
    with ThreadPoolExecutor(internals._THREADS) as pool:
        for _ in range(internals._THREADS):
            pool.submit(over.wait)
        other = pool.submit(int, 7)
        executor = SimpleNamespace(_job_submission_executor=pool)
        workflow = SimpleNamespace(scheduler=SimpleNamespace(_executor=executor))
        internals.let_submissions_wait(workflow, internals._THREADS)
        try:
            assert other.result(60) == 7
        finally:
            over.set()


@pytest.mark.parametrize(
    "group, submitted_as, refused, again",
    [
        (True, None, "pack", False),
        (False, None, "prepare", False),
        (True, None, "another", True),
        (True, "7", "pack", True),
    ],
    ids=["a job group", "a job alone", "another job", "a job that was submitted"],
)
def test_what_the_cluster_refuses_for_good_has_no_further_attempt(group, submitted_as, refused, again):
    from snakemake.scheduling.job_scheduler import JobScheduler
    from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

    class Job:
        groupid, rule, restart_times, _attempt = "pack", SimpleNamespace(name="prepare"), 2, 1
        attempt = property(lambda self: self._attempt, lambda self, number: setattr(self, "_attempt", number))

        def is_group(self):
            return group

    job = Job()
    scheduler = SimpleNamespace(
        workflow=SimpleNamespace(dag=SimpleNamespace(jobid=id, _ready_jobs=set())), running={job}, failed=set(),
        get_executor=lambda job: SimpleNamespace(handle_job_error=lambda job: None), _free_resources=lambda job: None,
    )  # fmt: skip

    def fail(info, msg=None):
        JobScheduler._handle_error(scheduler, info.job, postprocess_job=False)

    scheduler._executor = SimpleNamespace(report_job_error=fail)
    internals.give_up(SimpleNamespace(scheduler=scheduler), {refused}.__contains__)
    scheduler._executor.report_job_error(SubmittedJobInfo(job, submitted_as), msg="sbatch failed")
    assert (scheduler.workflow.dag._ready_jobs, scheduler.failed) == (
        ({job}, set()) if again else (set(), {job})
    )
