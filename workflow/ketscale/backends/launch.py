"""The shell prefix that starts a run's ranks with their threads set; imports nothing heavy."""

from __future__ import annotations

import os

from ketscale.grid import Run

# Every thread pool that a rank may open. They must be set before Python starts: OpenMP and Numba read them once.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
# Open MPI refuses to start as root (a container's usual user) without both.
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")


def prefix(run: Run, slurm: bool = False) -> str:
    """What stands before `ketscale train ...` on the command line.

    A run binds its own ranks to cores (see training/host.py), so launchers are told not to. Under SLURM,
    srun starts MPI ranks (PMIx) and one torchrun a node.
    """
    variables = " ".join(f"{name}={run.threads}" for name in THREAD_VARIABLES)
    per_node = run.ranks // run.nodes
    if run.backend == "mpi":
        if slurm:
            return f"env {variables} srun --mpi=pmix --ntasks={run.ranks} --nodes={run.nodes} --cpus-per-task={run.threads}"
        return f"env {variables} {' '.join(_ROOT)} mpirun -n {run.ranks} --bind-to none"
    if run.backend in ("ddp", "ddp-cpu"):
        ranks = f"--nproc-per-node={per_node}"
        if run.nodes == 1:
            return f"env {variables} torchrun --standalone {ranks} --no-python"
        rendezvous = '--rdzv-backend=c10d --rdzv-endpoint="$(scontrol show hostnames | head -n 1):29500"'
        return (
            f"env {variables} srun --nodes={run.nodes} --ntasks={run.nodes} --ntasks-per-node=1 "
            f"torchrun --nnodes={run.nodes} {ranks} {rendezvous} --no-python"
        )
    return f"env {variables}"


def local_rank() -> int:
    """This process's number among its node's ranks, as its launcher says before any world exists; else 0."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0
