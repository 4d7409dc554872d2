"""What takes minutes: a time limit, and the driver of a study of 2,000 runs."""

import io
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch

from ketscale.jobs.slurm import queue
from tests.slurm.project import accounted, target, wait_for
from tests.slurm.test_ends import config, one_run

pytestmark = pytest.mark.long


def test_a_run_out_of_time_is_tried_again_with_more_and_resumed(project):
    """SLURM counts limits in minutes, and may take one more to notice."""
    run = one_run(project, limits=[{"minutes": 1, "memory_mb": 600}], warning_s=30)
    # So slow that a minute does not do.
    settings = config(["cpu-n1r1t1"])
    settings["protocols"]["long"]["steps"] = 40_000
    project.study(**settings)
    with project.running(target(run)) as driver:
        job = wait_for("the job", lambda: project.job("shared"))
        wait_for("the note", lambda: (project.results(run) / "failure.json").exists(), 240)
        assert "it reached its time limit" in project.note(run)["reason"]
        second = wait_for(
            "the next try", lambda: (found := project.job("shared")) and found.id != job.id and found
        )
        assert accounted(job.id, "State") == "TIMEOUT"
        assert accounted(job.id, "TimelimitRaw") == "1"
        assert wait_for("the accounting", lambda: accounted(second.id, "TimelimitRaw")) == "2"
        wait_for("the run to go on", lambda: lives(project.checkpoint(run)) == 1)
        assert driver.poll() is None, project.log
    assert queue.jobs(project.folder) == []


def lives(checkpoint: Path) -> int:
    """How often the run had been resumed when it saved this."""
    content = checkpoint.read_bytes().split(b"\n", 1)[1]
    return torch.load(io.BytesIO(content), weights_only=True)["resumed"]


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
