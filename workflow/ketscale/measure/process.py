"""What launchers and schedulers say about this process. Imports nothing heavy."""

from __future__ import annotations

import os
import socket

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
