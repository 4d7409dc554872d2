"""The driver is killed while its jobs live on, and the next call; and a pack that is tried again."""

import os
import signal
import subprocess

import pandas as pd
import pytest

from ketscale.grid import Run
from ketscale.jobs import locks
from ketscale.jobs.driver import FOLDER
from ketscale.jobs.slurm import queue
from tests.nightly.slurm.disturbed import STEPS, config, ready
from tests.nightly.slurm.project import DRIVER, Project, target, wait_for


def kill_the_driver(project: Project, run: Run) -> queue.Job:
    """Snakemake dies while the run trains; its job lives on."""
    with_driver = subprocess.Popen(
        DRIVER,
        cwd=project.folder,
        env=project.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for("a checkpoint", lambda: project.checkpoint(run))
    os.kill(with_driver.pid, signal.SIGKILL)
    with_driver.wait()
    job = project.job()
    assert job is not None
    return job


def test_after_the_driver_was_killed_the_same_command_goes_on(project, tmp_path):
    """It ends the jobs of the killed one, and makes the tables of a study that nothing happened to."""
    quiet = Project(tmp_path / "quiet")
    quiet.site()
    # A busy machine must not end it by its time limit, which would end the job too.
    project.site(limits=[{"minutes": 30, "memory_mb": 1500}])
    # So many steps that it still trains when Snakemake has started again.
    disturbed = config(["cpu-n1r1t1"], steps=3 * STEPS)
    (run,) = ready(project, disturbed)
    ready(quiet, disturbed)
    job = kill_the_driver(project, run)
    with quiet.running() as driver:
        message = project.snakemake().stderr
        assert driver.wait(300) == 0, quiet.log
    assert "ketscale: the last Snakemake here was killed (process " in message
    assert f"cancelled its 1 job in the queue ({job.id})" in message
    resumed, other = project.record(run), quiet.record(run)
    assert resumed["weights_hash"] == other["weights_hash"]
    assert resumed["losses"] == other["losses"]
    assert resumed["resumed"] == 1
    actual, expected = (pd.read_csv(each.folder / "results/tables/runs.csv") for each in (project, quiet))
    untimed = ["seed", "status", "parameters"]
    pd.testing.assert_frame_equal(actual[untimed], expected[untimed])


@pytest.mark.long
def test_a_second_writer_waits_and_takes_the_result(project):
    """A second call knows nothing of the first one: it submits the run again, while the first call's job trains it."""
    project.site(limits=[{"minutes": 30, "memory_mb": 1500}])
    # It must still train when the second job has begun.
    (run,) = ready(project, config(["cpu-n1r1t1"], steps=5 * STEPS))
    job = kill_the_driver(project, run)
    (project.folder / FOLDER / locks.HOLDER).unlink()
    project.snakemake(target(run))
    record = project.record(run)
    assert (record["slurm_job_id"], record["resumed"]) == (job.id, 0)
    log = (project.results(run) / "train.log").read_text()
    assert f"job {job.id}" in log and "waiting until it ends" in log


@pytest.mark.nightly
def test_a_pack_that_is_tried_again_does_not_train_its_finished_runs_again(project):
    """One run of the pack fails at first; the others are there already, and are not trained twice."""
    runs = ready(project, config(["cpu-n1r1t1"], steps=50, seeds=3))
    # Its checkpoints cannot be written: root may write anywhere, so a file stands where the folder should.
    broken = project.results(runs[1]) / "checkpoint"
    broken.parent.mkdir(parents=True)
    broken.write_text("not a folder")
    with project.running("runs") as driver:
        wait_for("the failure", lambda: (project.results(runs[1]) / "failure.json").exists())
        wait_for(
            "the others",
            lambda: all((project.results(r) / "metrics.json").exists() for r in (runs[0], runs[2])),
        )
        broken.unlink()
        assert driver.wait(300) == 0, project.log
    jobs = [project.record(run)["slurm_job_id"] for run in runs]
    assert jobs[0] == jobs[2] != jobs[1]
