"""Time limits, which take minutes."""

import pytest

from ketscale.jobs.slurm import attempt, queue
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
            lambda: (found := project.job()) and restarts(found.id) >= 4 and found,
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
        assert "it reached its time limit" in project.note(run)["reason"]
        second = wait_for(
            "the next try", lambda: (found := project.job("timed")) and found.id != job.id and found
        )
        assert accounted(job.id, "State") == "TIMEOUT"
        assert accounted(job.id, "TimelimitRaw") == "1"
        assert wait_for("the accounting", lambda: accounted(second.id, "TimelimitRaw")) == "2"
        assert driver.poll() is None, project.log
    assert queue.jobs(project.folder) == []
