"""The ends of a job: cancelled, preempted, requeued, out of memory, a rank lost."""

import contextlib
import re
import time
from typing import Any

import psutil
import pytest

from ketscale.grid import Run
from ketscale.jobs.slurm import queue
from tests.nightly.slurm.disturbed import config, one_run, ready
from tests.nightly.slurm.project import Project, accounted, ask, target, wait_for

TWO_NODES = ["mpi-n2r2t1", "ddp-cpu-n2r2t1"]
# After a rank has died the others have ended, and the job with them, within this time. What takes longest is torchrun
# on another node, which gives its ranks 30 s.
DEAD_RANK_S = 60


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The records, by place, of runs that nothing happened to."""
    project = Project(tmp_path_factory.mktemp("undisturbed") / "project")
    project.site()
    runs = ready(project, config(TWO_NODES))
    project.snakemake("runs")
    records = {run.layout: project.record(run) for run in runs}
    assert all(record["resumed"] == 0 for record in records.values())
    return records


def assert_same_end(project: Project, run: Run, undisturbed: dict[str, dict[str, Any]]) -> None:
    """Bitwise the same weights as those of the run in the same place, and the interruption on record."""
    record, undisturbed = project.record(run), undisturbed[run.layout]
    assert record["status"] == "completed"
    assert record["weights_hash"] == undisturbed["weights_hash"]
    assert record["losses"] == undisturbed["losses"]
    assert record["resumed"] >= 1


def until_saved(project: Project, run: Run) -> queue.Job:
    """Wait for the run's first checkpoint; the job that it runs in."""
    wait_for("a checkpoint", lambda: project.checkpoint(run))
    job = project.job()
    assert job is not None
    return job


def test_a_cancelled_run_is_resumed(project, undisturbed):
    run = one_run(project, "mpi-n2r2t1")
    with project.running(target(run)) as driver:
        job = until_saved(project, run)
        ask("scancel", job.id)
        wait_for("the note", lambda: (project.results(run) / "failure.json").exists())
        assert "; stopped at step" in project.note(run)["reason"]
        assert driver.wait(600) == 0, project.log
    assert_same_end(project, run, undisturbed)
    assert project.record(run)["slurm_job_id"] != job.id
    assert not (project.results(run) / "failure.json").exists()


@pytest.mark.nightly
def test_a_preempted_run_is_requeued_and_resumed(project, undisturbed):
    run = one_run(project, "ddp-cpu-n2r2t1", partition="scavenge")
    with project.running(target(run)) as driver:
        job = until_saved(project, run)
        urgent = ("-A", "ci", "-p", "urgent", "-N", "2", "--exclusive", "-t", "2", "-o", "/dev/null")
        ask("sbatch", *urgent, "--wrap", "sleep 3")
        assert driver.wait(600) == 0, project.log
    assert_same_end(project, run, undisturbed)
    assert project.record(run)["slurm_job_id"] == job.id
    assert "PREEMPTED" in accounted(job.id, "State", "--duplicates")


@pytest.mark.nightly
def test_a_full_memory_is_said_and_the_retry_asks_for_more(project):
    project.site(limits=[{"minutes": 5, "memory_mb": 100}])
    settings = config(["mpi-n1r4t1"], steps=50)
    # Four ranks that import PennyLane need more than 1.1 GB, and less than 1.9 GB.
    settings["simulators"]["shift"] = {
        "device": "default.qubit", "gradient": "backprop", "batching": "broadcast", "placement": "model",
    }  # fmt: skip
    (run,) = ready(project, settings)
    with project.running(target(run), "--retries", "1") as driver:
        wait_for("the note", lambda: (project.results(run) / "failure.json").exists())
        note = project.note(run)
        assert driver.wait(600) == 0, project.log
    reason, job = note["reason"], note["job"]
    assert reason.startswith("out of memory")
    wait_for("the accounting", lambda: "OUT_OF_MEMORY" in ask("sacct", "-n", "-P", "-j", job, "-o", "State"))
    record = project.record(run)
    assert record["status"] == "completed"
    assert record["slurm_job_id"] != job


@pytest.mark.parametrize("place", [TWO_NODES[0], pytest.param(TWO_NODES[1], marks=pytest.mark.nightly)])
def test_a_dead_rank_ends_the_run_and_is_named(project, place):
    (run,) = ready(project, config([place], steps=100_000))
    with project.running(target(run), "--retries", "0") as driver:
        job = until_saved(project, run)
        victim = wait_for("rank 1", lambda: rank_process(job.id, 1))
        node = victim.environ()["SLURMD_NODENAME"]
        others = [rank_process(job.id, 0)]
        victim.kill()
        killed = time.monotonic()
        wait_for("the job to end", lambda: not queue.jobs(project.folder), DEAD_RANK_S)
        print(f"{place}: the job had ended {time.monotonic() - killed:.1f} s after its rank had died")
        assert not any(other.is_running() for other in others)
        assert driver.wait(600) == 1
    reason = project.note(run)["reason"]
    # In the words of srun, or of torchrun.
    named = rf"srun: error: {node}: task 1: Killed|Signal 9 \(SIGKILL\) received by PID {victim.pid}"
    assert "exit status" in reason and re.search(named, reason)
    assert reason in " ".join(project.log.split())


def rank_process(job: str, rank: int) -> psutil.Process | None:
    """The process of a rank of a job."""
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            words = process.info["cmdline"] or []
            variables = process.environ() if any(word.endswith("/ketscale") for word in words[:2]) else {}
            mine = variables.get("RANK", variables.get("SLURM_PROCID"))
            if "train" in words and variables.get("SLURM_JOB_ID") == job and mine == str(rank):
                return process
    return None
