"""What a process's environment says of it: its node, its number there, its thread pools; imports nothing heavy."""

from __future__ import annotations

import os
import socket

# Every thread pool that a rank may open. They must be set before Python starts: OpenMP and Numba read them once.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def node_name() -> str:
    """The name of this node; SLURM's own where it runs several nodes on one host."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def local_rank() -> int:
    """This process's number among its node's ranks, as its launcher says before any world exists; else 0."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0
