"""A campaign in a bad night: everything that may go wrong with a cluster does, at random moments, and every run ends.

A moment is a number of runs that are left, and a fault that disturbs nothing fails the test. The record of
one run waits for the last fault, so there is always a job that trains, however fast the others are. The seed of the night
is printed, and set by KETSCALE_FAULT_SEED. The records are bitwise those of a campaign that nothing happened to where the
same members trained together, and otherwise begin with the same losses on the same data.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from ketscale import grid
from ketscale.grid import Run
from ketscale.jobs import locks
from ketscale.jobs.slurm import queue
from tests.nightly.slurm import disturbed
from tests.nightly.slurm.project import Project, accounted, ask, restarts, wait_for
from tests.nightly.slurm.test_submission import FUSED

SEED = os.environ.get("KETSCALE_FAULT_SEED") or str(secrets.randbits(32))
# One core, two ranks of MPI on a node, and one rank on each of two nodes.
PLACES = ("cpu-n1r1t1", "mpi-n1r2t1", "ddp-cpu-n2r2t1")
PARTITION = "campaign"
# Enough for a fault to meet them. A step of ranks that share a machine's cores takes ten times as long.
STEPS, STEPS_ON_RANKS = 1500, 800
STATE = Path(os.environ.get("KETSCALE_SLURM_STATE", "/var/tmp/ketscale-slurm"))
# Python runs this when a process starts: none that trains opens the record of one run, or the copy that it leaves for the
# run's own job, while the file `held` exists.
AT_START = """
import os, sys, time
def wait(event, arguments):
    if event == "open" and "{folder}/" in str(arguments[0]) and "/.{record}." in str(arguments[0]):
        while os.path.exists("{held}"):
            time.sleep(0.1)
if "train" in sys.orig_argv:
    sys.addaudithook(wait)
"""


# A launcher's variables for one of two ranks, as an interrupted one leaves them in a shell.
LEAKED = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


class Night:
    """A campaign, its driver, and what happens to both."""

    def __init__(self, project: Project, runs: list[Run], rng: random.Random) -> None:
        self.project, self.runs, self.rng = project, runs, rng
        self.held = project.folder / "held"
        self.held.touch()
        project.first = [str(project.folder / "first")]
        (project.folder / "first").mkdir()
        (project.folder / "first" / "sitecustomize.py").write_text(
            AT_START.format(folder=self.last.folder, record=grid.RECORD, held=self.held)
        )
        self.driver = project.start("runs")
        self.calls = 1

    def again(self) -> None:
        """The same command again."""
        self.driver, self.calls = self.project.start("runs"), self.calls + 1

    @property
    def last(self) -> Run:
        """The run whose record waits for the last fault: the last of those on one core, so that few wait with it."""
        return max((run for run in self.runs if run.backend == "cpu"), key=lambda run: run.seed)

    def left(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.runs if not (self.project.results(run) / grid.RECORD).exists()]

    def holders(self) -> list[locks.Holder]:
        """The processes that train."""
        last = (locks.last(self.project.results(run)) for run in self.left())
        return [one for one in last if one is not None and one.until is None]

    def goes_on(self) -> None:
        """Check that the run whose record waits has not ended, and call again if the driver has."""
        assert self.last in self.left(), f"seed {SEED}: the record of {self.last.path} has not waited"
        if self.driver.poll() is not None:
            # Faults have used up the attempts of some run; nobody would do less in the morning.
            assert self.calls <= 2 * len(FAULTS), self.project.log
            self.again()

    def until(self, left: int) -> None:
        """Wait until no more runs are left than these."""

        def over() -> bool:
            self.goes_on()
            return len(self.left()) <= left

        wait_for(f"{left} runs to be left", over, 3600)

    def job(self) -> queue.Job:
        """One of the jobs that train now."""

        def training() -> list[queue.Job]:
            self.goes_on()
            jobs = {one.job for one in self.holders()}
            result = queue.jobs(self.project.folder)
            return [job for job in result if job.state == "RUNNING" and job.id in jobs]

        return self.rng.choice(wait_for("a job that trains", training, 900))

    def requeue(self) -> None:
        """Requeue a job that trains; if it has ended meanwhile, another one."""
        requeued = False
        while not requeued:
            job = self.job()
            before = restarts(job.id)
            said("scontrol", "requeue", job.id)
            # Accounting has once not shown a requeued attempt, on a busy machine.
            over = lambda: job.id not in [one.id for one in queue.jobs(self.project.folder)]  # noqa: B023, E731
            wait_for("SLURM to requeue a job", lambda: restarts(job.id) > before or over(), 300)  # noqa: B023
            requeued = restarts(job.id) > before

    def disturb(self, how: Callable[[queue.Job], None], ends: tuple[str, ...]) -> queue.Job:
        """Have an attempt of a job that trains end so; if it has ended in another way meanwhile, that of another job."""
        while True:
            job = self.job()
            before = len(endings(job))
            how(job)
            states = wait_for("the end of an attempt", lambda: endings(job)[before:], 900)  # noqa: B023
            if states[0] in ends:
                return job

    def until_over(self) -> None:
        self.held.unlink(missing_ok=True)
        status = self.driver.wait(3600)
        if status:
            # What the night has left undone after three attempts; nobody would do less in the morning.
            self.again()
            assert self.driver.wait(3600) == 0, self.project.log


def endings(job: queue.Job) -> list[str]:
    """How the attempts of a job have ended, as SLURM's accounting says it."""
    states = [line.split()[0] for line in accounted(job.id, "State", "--duplicates").splitlines()]
    return [state for state in states if state not in ("PENDING", "RUNNING")]


def requeued(night: Night) -> None:
    night.requeue()


def cancelled(night: Night) -> None:
    night.disturb(lambda job: said("scancel", job.id), ("CANCELLED",))


def said(*command: str) -> None:
    """Say it to SLURM, which may answer that the job has just ended."""
    subprocess.run(command, check=False, capture_output=True, timeout=60)


def node_down(night: Night) -> None:
    nodes = []

    def goes_down(job: queue.Job) -> None:
        node = ask("squeue", "-h", "-t", "all", "-j", job.id, "-o", "%B").strip()
        nodes.append(node)
        there = daemons(ask("squeue", "-h", "-w", node, "-o", "%i").split())
        ask("scontrol", "update", f"nodename={node}", "state=down", "reason=a bad night")
        # Nothing runs on a node that comes back. SLURM holds a job whose former attempt is still there, for ever.
        wait_for("its processes to end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in there))
        # It may be back by itself, and is then refused.
        said("scontrol", "update", f"nodename={node}", "state=resume")

    night.disturb(goes_down, ("NODE_FAIL", "REQUEUED"))
    for node in nodes:
        wait_for(f"{node} to be back", lambda: "down" not in ask("sinfo", "-h", "-n", node, "-o", "%T"))  # noqa: B023


def daemons(jobs: list[str]) -> list[int]:
    """The processes of SLURM's that run the steps of some jobs."""
    values = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(psutil.Error):  # it has just ended
            words = " ".join(psutil.Process(pid).cmdline())
            if any(words.startswith(f"slurmstepd: [{job}.") for job in jobs):
                values.append(pid)
    return values


def out_of_memory(night: Night) -> None:
    """The kernel, short of memory, ends the largest process of a job, which is one that trains."""
    while True:
        job = night.job()
        pids = {one.pid for one in night.holders() if one.job == job.id}
        # They may have ended meanwhile.
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            pid = min(pid for pid in pids if "train" in psutil.Process(pid).cmdline())
            os.kill(pid, signal.SIGKILL)
            return


def driver_killed(night: Night) -> None:
    night.driver.send_signal(signal.SIGKILL)
    night.driver.wait()
    night.goes_on()


def partition_inactive(night: Night) -> None:
    """Until a job has met it: one that waits or, if there is none, one that trains and must wait now."""
    ask("scontrol", "update", f"partitionname={PARTITION}", "state=inactive")

    def waits() -> bool:
        reasons = [job.reason for job in queue.jobs(night.project.folder) if job.state == "PENDING"]
        log = night.project.log
        waiting = log.count("sbatch rejected a job") > log.count("sbatch accepts jobs again")
        return waiting or any("Partition" in reason for reason in reasons)

    requeued = set[str]()

    def meets() -> bool:
        night.goes_on()
        jobs = queue.jobs(night.project.folder)
        if all(job.state == "RUNNING" for job in jobs) and (left := {job.id for job in jobs} - requeued):
            # Whether it waits then, or ends and its next attempt is refused.
            requeued.add(min(left))
            said("scontrol", "requeue", min(left))
        return waits()

    wait_for("a job that waits for the partition", meets, 600)
    ask("scontrol", "update", f"partitionname={PARTITION}", "state=up")


def full_disk(night: Night) -> None:
    """Until a run has met it; the first fault, while there is much to write and the run whose record waits is far from it."""
    night.job()
    results, before = night.project.folder / "results", complaints(night.project)
    subprocess.run(f"cat /dev/zero > {results / 'full'}", shell=True, check=False, capture_output=True)
    # The run whose record waits may be the only one left.
    night.held.unlink()
    wait_for("a run that finds the disk full", lambda: complaints(night.project) - before, 600)
    night.held.touch()
    (results / "full").unlink()


def complaints(project: Project) -> set[tuple[Path, int]]:
    """Which logs of drivers and jobs say that a disk is full, and how often."""
    logs = [project.folder / "driver.log", *(project.folder / ".snakemake" / "slurm_logs").rglob("*.log")]
    result = set()
    for path in logs:
        with contextlib.suppress(FileNotFoundError):  # that of a job that succeeded is deleted
            result.add((path, path.read_text(errors="replace").count("No space left on device")))
    return {(path, count) for path, count in result if count}


def short_limit(night: Night) -> None:
    night.disturb(
        lambda job: said("scontrol", "update", f"jobid={job.id}", "timelimit=1"), ("TIMEOUT", "REQUEUED")
    )


def leaked_variables(night: Night) -> None:
    night.driver.send_signal(signal.SIGINT)
    night.driver.wait(300)
    night.project.variables = LEAKED
    night.goes_on()


# A disk is full for too long beside a few runs, so that only the long night has that.
FAULTS: tuple[Callable[[Night], None], ...] = (
    requeued, cancelled, node_down, out_of_memory, driver_killed, partition_inactive, short_limit, leaked_variables, full_disk,
)  # fmt: skip


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
    )
    config = disturbed.config(["cpu-n1r1t1"], steps=STEPS)
    config["protocols"]["long"]["checkpoint_steps"] = 50
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


def bad_night(folder: Path, numbers: tuple[int, ...], faults: tuple[Callable[[Night], None], ...]) -> None:
    rng = random.Random(SEED)
    quiet, runs = campaign(folder / "quiet", numbers)
    quiet.prepare()
    quiet.snakemake("runs", seconds=3600)
    project, _ = campaign(folder / "disturbed", numbers)
    order = sorted(rng.sample(faults, len(faults)), key=lambda fault: fault is not full_disk)
    moments = sorted(rng.sample(range(len(runs) // 3, len(runs)), len(faults)), reverse=True)
    with disk(project.folder / "results", 40 + 2 * len(runs)):
        project.prepare()
        night = Night(project, runs, rng)
        try:
            for moment, fault in zip(moments, order, strict=True):
                night.until(moment)
                print(
                    f"seed {SEED}: {fault.__name__} with {len(night.left())} of {len(runs)} runs left",
                    flush=True,
                )
                fault(night)
            night.until_over()
            records = {run: (project.record(run), quiet.record(run)) for run in runs}
        finally:
            project.end(night.driver)
    for run, (record, complete) in records.items():
        assert record["status"] == complete["status"] == "completed", run.path
        np.testing.assert_allclose(
            record["losses"], complete["losses"], rtol=1e-10, err_msg=f"seed {SEED}, {run.path}"
        )
        if record["cohort"] == complete["cohort"]:
            for name in ("weights_hash", "losses", "quality"):
                assert record[name] == complete[name], f"seed {SEED}: another {name} of {run.path}"
    assert queue.jobs(project.folder) == []


def test_a_bad_night(partition, tmp_path: Path) -> None:
    bad_night(tmp_path, (27, 2, 1), FAULTS[:-1])


@pytest.mark.long
def test_a_long_one(partition, tmp_path: Path) -> None:
    bad_night(tmp_path, (270, 20, 10), FAULTS)
