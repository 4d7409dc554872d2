"""What launchers and schedulers say about this process. Imports nothing heavy."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

# The variables of every thread pool that a rank may start. OpenMP and Numba read them once, so set them before
# Python.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def local_rank() -> int:
    """This process's number among the ranks of its node, from its launcher's variables; 0 without a launcher."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def slurm_job() -> str | None:
    """The id of the SLURM job that this process is in; None outside a job."""
    return os.environ.get("SLURM_JOB_ID")


def node_name() -> str:
    """The name of this node; SLURM's name if it gives one, since it may run several nodes on one host."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def boot_and_namespace() -> tuple[str | None, str | None]:
    """The running kernel and the process numbers of it that this process sees; (None, None) if it is not said."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return None, None


def age_s() -> float:
    """Seconds since this process started, by a clock that nobody sets: the time of day may step back."""
    # Field 22 of proc(5)'s stat, behind the command's name, which may have spaces and parentheses.
    ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK"))
