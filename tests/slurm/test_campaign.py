"""A campaign in a bad night: everything that may go wrong with a cluster does, at random moments, and every run ends.

The seed of the night is printed, and set by KETSCALE_FAULT_SEED. The records are bitwise those of a campaign that nothing
happened to where the same members trained together, and otherwise begin with the same losses on the same data.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ketscale.grid import Run
from ketscale.jobs.slurm import queue
from tests.slurm import disturbed
from tests.slurm.project import Project, ask, wait_for
from tests.slurm.test_submission import FUSED

SEED = os.environ.get("KETSCALE_FAULT_SEED") or str(secrets.randbits(32))
# One core, two ranks of MPI on a node, and one rank on each of two nodes.
PLACES = ("cpu-n1r1t1", "mpi-n1r2t1", "ddp-cpu-n2r2t1")
PARTITION = "campaign"
# Enough for a fault to meet them. A step of ranks that share a machine's cores takes ten times as long.
STEPS, STEPS_ON_RANKS = 1000, 300
STATE = Path(os.environ.get("KETSCALE_SLURM_STATE", "/var/tmp/ketscale-slurm"))
MINUTE = 60.0
# A process of Python that finds this file when it starts, and takes it, has a clock that is an hour ahead.
CLOCK = """
import os, sys, time
if "train" in sys.orig_argv:
    try:
        os.rename("{file}", "{file}-taken")
        now = time.time
        time.time = lambda: now() + 3600
    except OSError:
        pass
"""
# A launcher's variables for one of two ranks, as an interrupted one leaves them in a shell.
LEAKED = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


class Night:
    """A campaign, its driver, and what happens to both."""

    def __init__(self, project: Project, runs: list[Run], rng: random.Random) -> None:
        self.project, self.runs, self.rng = project, runs, rng
        self.driver = project.start("runs")
        self.calls = 1

    @property
    def over(self) -> bool:
        return self.driver.poll() is not None

    def finished(self) -> int:
        return sum((self.project.results(run) / "metrics.json").exists() for run in self.runs)

    def again(self) -> None:
        """The same command again."""
        self.driver, self.calls = self.project.start("runs"), self.calls + 1

    def job(self) -> queue.Job | None:
        """One of the jobs that run now; None at the end, when there is none any more."""

        def running() -> list[queue.Job] | bool:
            found = [job for job in queue.jobs(self.project.folder) if job.state == "RUNNING"]
            return found or self.over

        found = wait_for("a job", running, 900)
        return self.rng.choice(found) if isinstance(found, list) else None

    def until_over(self) -> None:
        status = self.driver.wait(3600)
        if status:
            # What the night has left undone after three attempts; nobody would do less in the morning.
            self.again()
            assert self.driver.wait(3600) == 0, self.project.log


def requeued(night: Night) -> None:
    if job := night.job():
        subprocess.run(["scontrol", "requeue", job.id], check=False)


def cancelled(night: Night) -> None:
    if job := night.job():
        subprocess.run(["scancel", job.id], check=False)


def node_down(night: Night) -> None:
    if job := night.job():
        node = ask("squeue", "-h", "-t", "all", "-j", job.id, "-o", "%B").strip()
        ask("scontrol", "update", f"nodename={node}", "state=down", "reason=a bad night")
        wait_for("its job to end", lambda: queue.job_over(job.id) or queue.state(job.id)[:7] != "RUNNING")
        ask("scontrol", "update", f"nodename={node}", "state=resume")


def out_of_memory(night: Night) -> None:
    """Another process of the job takes all of its memory."""
    if job := night.job():
        hog = ("srun", "--overlap", f"--jobid={job.id}", "-N1", "-n1", "python3", "-c", "x = [bytearray(1 << 20) for _ in range(1 << 11)]; import time; time.sleep(60)")  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(hog, check=False, capture_output=True, timeout=60, env=night.project.environment)


def driver_killed(night: Night) -> None:
    night.driver.send_signal(signal.SIGKILL)
    night.driver.wait()
    night.again()


def partition_inactive(night: Night) -> None:
    ask("scontrol", "update", f"partitionname={PARTITION}", "state=inactive")
    time.sleep(MINUTE)
    ask("scontrol", "update", f"partitionname={PARTITION}", "state=up")


def full_disk(night: Night) -> None:
    results = night.project.folder / "results"
    free = os.statvfs(results).f_bavail * os.statvfs(results).f_frsize
    subprocess.run(["fallocate", "-l", str(free), results / "full"], check=True)
    time.sleep(MINUTE)
    (results / "full").unlink()


def short_limit(night: Night) -> None:
    if job := night.job():
        subprocess.run(["scontrol", "update", f"jobid={job.id}", "timelimit=1"], check=False)


def leaked_variables(night: Night) -> None:
    night.driver.send_signal(signal.SIGINT)
    night.driver.wait(300)
    night.project.variables = LEAKED
    night.again()


def clock_jumps(night: Night) -> None:
    (night.project.folder / "clock").touch()


FAULTS: tuple[Callable[[Night], None], ...] = (
    requeued, cancelled, node_down, out_of_memory, driver_killed, partition_inactive, full_disk, short_limit,
    leaked_variables, clock_jumps,
)  # fmt: skip
SHORT = (requeued, driver_killed, leaked_variables, clock_jumps)


@contextlib.contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A disk of its own in a folder, seen from all nodes, which have file systems of their own."""
    image = folder.with_name(f"{folder.name}.img")
    subprocess.run(["fallocate", "-l", f"{megabytes}M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    device = ask("losetup", "--show", "-f", str(image)).strip()
    folder.mkdir()
    places = [
        [],
        *(["nsenter", "-m", "-t", path.read_text().strip()] for path in (STATE / "run").glob("slurmd.*.pid")),
    ]
    mounted: list[list[str]] = []
    try:
        for place in places:
            subprocess.run([*place, "mount", device, folder], check=True)
            mounted.append(place)
        yield
    finally:
        for place in mounted:
            subprocess.run([*place, "umount", "-l", folder], check=True)
        subprocess.run(["losetup", "-d", device], check=True)
        image.unlink()


@pytest.fixture
def partition(cluster) -> Iterator[None]:
    ask("scontrol", "create", f"partitionname={PARTITION}", "nodes=node[1-4]", "maxtime=60", "state=up")
    yield
    ask("scontrol", "delete", f"partitionname={PARTITION}")


def campaign(folder: Path, numbers: tuple[int, ...]) -> tuple[Project, list[Run]]:
    project = Project(folder)
    project.site(
        partition=PARTITION,
        limits=[{"minutes": 3, "memory_mb": 700}],
        pack={"minutes": 60, "runs": 20},
        warning_s=20,
    )
    config = disturbed.config(["cpu-n1r1t1"], steps=STEPS)
    config["protocols"]["ranks"] = {**config["protocols"]["long"], "steps": STEPS_ON_RANKS}
    # Seeds on one core are trained together.
    config["simulators"] = {"fused": FUSED}
    study = config["studies"]["long"]
    study["axes"]["simulator"] = "fused"
    study["points"] = [
        {"backend": place, "protocol": "long" if place == PLACES[0] else "ranks", "seed": list(range(number))}
        for place, number in zip(PLACES, numbers, strict=True)
    ]
    for axis in ("backend", "protocol", "seed"):
        del study["axes"][axis]
    return project, project.study(**config)


def bad_night(folder: Path, faults: tuple[Callable[[Night], None], ...], numbers: tuple[int, ...]) -> None:
    rng = random.Random(SEED)
    quiet, runs = campaign(folder / "quiet", numbers)
    quiet.prepare()
    quiet.snakemake("runs", seconds=3600)
    project, _ = campaign(folder / "disturbed", numbers)
    (project.folder / "first").mkdir()
    (project.folder / "first" / "sitecustomize.py").write_text(CLOCK.format(file=project.folder / "clock"))
    project.first = [str(project.folder / "first")]
    order = rng.sample(faults, len(faults))
    moments = sorted(rng.uniform(0, 0.8) for _ in faults)
    own_disk = full_disk in faults
    with disk(project.folder / "results", 40 + 2 * len(runs)) if own_disk else contextlib.nullcontext():
        project.prepare()
        night = Night(project, runs, rng)
        try:
            for moment, fault in zip(moments, order, strict=True):
                wanted = moment * len(runs)
                wait_for(fault.__name__, lambda: night.finished() >= wanted or night.over, 3600)  # noqa: B023
                time.sleep(rng.uniform(0, MINUTE / 2))
                print(
                    f"seed {SEED}: {fault.__name__} after {night.finished()} of {len(runs)} runs", flush=True
                )
                fault(night)
            night.until_over()
            records = {run: (project.record(run), quiet.record(run)) for run in runs}
        finally:
            project.end(night.driver)
    for run, (record, whole) in records.items():
        assert record["status"] == whole["status"] == "completed", run.path
        assert record["features_hash"] == whole["features_hash"] and record["split"] == whole["split"], (
            run.path
        )
        np.testing.assert_allclose(
            record["losses"], whole["losses"], rtol=1e-10, err_msg=f"seed {SEED}, {run.path}"
        )
        if record["cohort"] == whole["cohort"]:
            for name in ("weights_hash", "losses", "quality"):
                assert record[name] == whole[name], f"seed {SEED}: another {name} of {run.path}"
    assert queue.jobs(project.folder) == []
    alike = sum(record["cohort"] == whole["cohort"] for record, whole in records.values())
    again = sum(record["resumed"] for record, _ in records.values())
    print(
        f"seed {SEED}: {len(runs)} runs in {night.calls} calls; resumed {again} times, {alike} in the same company"
    )


@pytest.mark.long
def test_a_bad_night_in_short(partition, tmp_path: Path) -> None:
    bad_night(tmp_path, SHORT, (27, 2, 1))


@pytest.mark.long
def test_a_bad_night(partition, tmp_path: Path) -> None:
    bad_night(tmp_path, FAULTS, (270, 20, 10))
