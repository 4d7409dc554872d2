"""What takes minutes: time limits, and the driver of a study of 3,000 runs."""

import re
import signal
import time

import psutil
import pytest

from ketscale import analysis
from ketscale.jobs.slurm import attempt, queue
from tests import records_factory as factory
from tests.nightly.slurm.disturbed import config, ready
from tests.nightly.slurm.project import accounted, restarts, target, wait_for

pytestmark = pytest.mark.long


def test_a_run_longer_than_its_attempts_allow_goes_on_while_it_makes_progress(project):
    """At a limit of a minute, as if that were the partition's: no attempt that got further is one that counts."""
    project.site(limits=[{"minutes": 1, "memory_mb": 600}])
    (run,) = ready(project, config(["cpu-n1r1t1"], steps=1_000_000))
    with project.running(target(run)) as driver:
        # On a busy machine an attempt may end before its first step, and counts.
        job = wait_for(
            "attempts that got further",
            lambda: (result := project.job()) and restarts(result.id) >= 4 and result,
            1500,
        )
        reached = attempt.step(project.results(run))
        wait_for("the run to go on", lambda: attempt.step(project.results(run)) > reached)
        assert driver.poll() is None, project.log
        states = accounted(job.id, "State", "--duplicates").split()
    print(f"attempts: {states}, {reached} steps")
    assert states.count("REQUEUED") >= 4 and "TIMEOUT" not in states


def test_an_attempt_without_progress_counts(project):
    """SLURM counts limits in minutes, and may take one more to notice. A timed run saves nothing."""
    project.site(limits=[{"minutes": 1, "memory_mb": 600}])
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
        assert re.search("TIME LIMIT|TimeLimit|TIMEOUT", project.note(run)["reason"])
        wait_for("the next try", lambda: (result := project.job("timed")) and result.id != job.id)
        assert accounted(job.id, "State") == "TIMEOUT"
        assert accounted(job.id, "TimelimitRaw") == "1"
        assert driver.poll() is None, project.log
    assert queue.jobs(project.folder) == []


def test_the_driver_of_three_thousand_runs_of_which_a_hundred_are_finished(project):
    """A login node does not notice it, and nothing is submitted twice; the figures are printed. Jobs wait in the queue."""
    project.site(
        partition="waiting", limits=[{"minutes": 1, "memory_mb": 500}], pack={"minutes": 60, "runs": 25}
    )
    axes = factory.point(protocol="parity", simulator="fused", seed=list(range(3000)))
    many = factory.small_study({"many": {"kind": "parity", "question": "Do losses agree?", "axes": axes}})
    runs, config = project.study(**many), analysis.of(many)
    finished = set(runs[:100])
    factory.write_all(config, project.folder / "results", lambda run: {} if run in finished else None)
    start = time.monotonic()
    project.snakemake("-n", "--quiet", "all", "--", "runs")
    dry_s = time.monotonic() - start
    with project.running("runs") as driver:
        process = psutil.Process(driver.pid)
        start = time.monotonic()
        wait_for("the first job", lambda: jobs(project), 600)
        first_s = time.monotonic() - start
        wait_for("all that may be in the queue", lambda: len(jobs(project)) >= 100, 600)
        all_s, planning_s = time.monotonic() - start, sum(process.cpu_times()[:2])
        watched = time.monotonic()
        while time.monotonic() - watched < 60:
            result = jobs(project)
            assert len(result) == len(set(result)) == 100
            time.sleep(5)
        cpu_s = sum(process.cpu_times()[:2]) - planning_s
        print(
            f"\n{len(runs)} runs, 100 finished: dry run {dry_s:.0f} s; first job in the queue after {first_s:.0f} s, a hundred "
            f"after {all_s:.0f} s ({planning_s:.0f} s of processor); then {cpu_s / 0.6:.1f} % of a processor and "
            f"{process.memory_info().rss / 1e6:.0f} MB"
        )
        driver.send_signal(signal.SIGINT)
        driver.wait(300)
    assert jobs(project) == []
    # Another call submits what is not finished, once.
    with project.running("runs"):
        wait_for("all that may be in the queue", lambda: len(jobs(project)) >= 100, 600)
        result = jobs(project)
        assert len(result) == len(set(result)) == 100


def jobs(project):
    """The job groups in the queue."""
    return [job.pack for job in queue.jobs(project.folder)]
