"""What launchers and schedulers say of this process. Imports nothing heavy."""

from __future__ import annotations

import os
import socket

# Every thread pool that a rank may open. They must be set before Python starts: OpenMP and Numba read them once.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def local_rank() -> int:
    """This process's number among its node's ranks, as its launcher says before any world exists; else 0."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def slurm_job() -> str | None:
    """The id of the SLURM job that this process is in; None outside of one."""
    return os.environ.get("SLURM_JOB_ID")


def node_name() -> str:
    """The name of this node; SLURM's own where it runs several nodes on one host."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
