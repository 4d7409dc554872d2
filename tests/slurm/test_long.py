"""What takes minutes: a time limit, and the driver of a study of 2,000 runs."""

import signal
import time

import psutil
import pytest

from ketscale.jobs.slurm import attempt, queue
from tests.slurm.disturbed import config, ready
from tests.slurm.project import accounted, target, wait_for

pytestmark = pytest.mark.long


def test_a_run_longer_than_its_attempts_allow_goes_on_while_it_makes_progress(project):
    """At a limit of a minute, as if that were the partition's: no attempt that got further is one that counts."""
    project.site(limits=[{"minutes": 1, "memory_mb": 600}], warning_s=20)
    (run,) = ready(project, config(["cpu-n1r1t1"], steps=1_000_000))
    with project.running(target(run)) as driver:
        # On a busy machine an attempt may end before its first step, and counts.
        job = wait_for(
            "attempts that got further",
            lambda: (found := project.job()) and (queue.restarts(found.id) or 0) >= 4 and found,
            1500,
        )
        reached = attempt.step(project.results(run))
        wait_for("the run to go on", lambda: attempt.step(project.results(run)) > reached)
        assert driver.poll() is None, project.log
        states = accounted(job.id, "State", "--duplicates").split()
    print(f"attempts: {states}, {reached} steps")
    assert states.count("REQUEUED") >= 4 and "TIMEOUT" not in states


def test_an_attempt_without_progress_counts_and_the_next_has_more_time(project):
    """SLURM counts limits in minutes, and may take one more to notice. A timed run saves nothing."""
    project.site(limits=[{"minutes": 1, "memory_mb": 600}], warning_s=30)
    settings = config(["cpu-n1r1t1"], steps=1_000_000)
    settings["protocols"]["long"] = {
        **settings["protocols"]["long"], "timed": True, "warmup": 1, "sampled_steps": 2,
    }  # fmt: skip
    del settings["protocols"]["long"]["checkpoint_steps"]
    settings["studies"]["long"]["kind"] = "strong"
    (run,) = ready(project, settings)
    with project.running(target(run)) as driver:
        job = wait_for("the job", lambda: project.job("timed"))
        wait_for("the note", lambda: (project.results(run) / "failure.json").exists(), 240)
        assert "it reached its time limit" in project.note(run)["reason"]
        second = wait_for(
            "the next try", lambda: (found := project.job("timed")) and found.id != job.id and found
        )
        assert accounted(job.id, "State") == "TIMEOUT"
        assert accounted(job.id, "TimelimitRaw") == "1"
        assert wait_for("the accounting", lambda: accounted(second.id, "TimelimitRaw")) == "2"
        assert driver.poll() is None, project.log
    assert queue.jobs(project.folder) == []


def test_the_driver_of_two_thousand_runs(project):
    """At most 200 jobs in the queue, and a driver that a login node does not notice; the figures are printed."""
    project.site(limits=[{"minutes": 2, "memory_mb": 500}])
    settings = config(["cpu-n1r1t1"], steps=10, seeds=2000)
    runs = project.study(**settings)
    assert len(runs) == 2000
    most = 0
    with project.running("runs") as driver:
        process = psutil.Process(driver.pid)
        started = time.monotonic()
        wait_for("the first pack", lambda: len(queue.jobs(project.folder)) > 5, 300)
        planned_s, planning_cpu_s = time.monotonic() - started, sum(process.cpu_times()[:2])
        watched = time.monotonic()
        while time.monotonic() - watched < 300:
            most = max(most, len(queue.jobs(project.folder)))
            time.sleep(5)
        cpu_s = sum(process.cpu_times()[:2]) - planning_cpu_s
        memory_mb = process.memory_info().rss / 1e6
        done = sum((project.results(run) / "metrics.json").exists() for run in runs)
        print(
            f"\n2,000 runs: first jobs in the queue after {planned_s:.0f} s ({planning_cpu_s:.0f} s of processor); then in "
            f"300 s {done} runs were finished, at most {most} jobs were in the queue, and the driver used {cpu_s:.1f} s of "
            f"processor ({cpu_s / 3:.1f} %) and {memory_mb:.0f} MB"
        )
        driver.send_signal(signal.SIGINT)
        driver.wait(120)
    assert 0 < most <= 200
    assert done > 0
