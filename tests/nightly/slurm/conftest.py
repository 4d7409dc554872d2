"""The cluster of these tests: started once, on this machine, and stopped at the end."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.nightly.slurm.project import Project

CLUSTER = Path(__file__).parent / "cluster"
PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "slurmdbd": "slurmdbd",
    "munged": "munge",
    "mariadbd": "mariadb-server",
}


@pytest.fixture
def slurm_of_this_machine():
    """The cluster of these tests, instead of none."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, request):
    """Eight nodes of four CPUs and 4 GB, with accounting, preemption and two stand-in GPUs each.

    Several workers share it: the first starts it, and the last to end stops it if it was not up before.
    """
    if os.geteuid() != 0:
        pytest.skip("starting a SLURM cluster needs root")
    absent = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if absent:
        pytest.skip(f"not installed: apt-get install --no-install-recommends {' '.join(absent)} openmpi-bin")
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        shared = shared.parent
    actual = shared / "cluster-is-ours"
    with (shared / "starting").open("w") as starting, (shared / "using").open("w") as using:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if subprocess.run(["sinfo"], capture_output=True, timeout=60).returncode != 0:
            actual.touch()
        started = subprocess.run(["bash", CLUSTER / "start.sh"], capture_output=True, text=True, timeout=120)
        assert started.returncode == 0, started.stdout + started.stderr
        fcntl.flock(using, fcntl.LOCK_SH)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield
        fcntl.flock(starting, fcntl.LOCK_EX)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(using, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if actual.exists():
                subprocess.run(["bash", CLUSTER / "stop.sh"], check=True, timeout=120)


@pytest.fixture
def project(cluster, tmp_path):
    """A project that knows the cluster."""
    # A node that another test has left in an odd state would fail this one.
    down = subprocess.run(
        ["sinfo", "-h", "-N", "-t", "drain,down", "-o", "%N"], capture_output=True, text=True
    )
    for node in sorted(set(down.stdout.split())):
        subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=True)
    result = Project(tmp_path / "project")
    result.site()
    return result
