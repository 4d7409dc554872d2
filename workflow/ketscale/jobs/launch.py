"""The shell prefix that starts a run's ranks with their threads set; imports nothing heavy."""

from __future__ import annotations

from ketscale.grid import BACKENDS, Run
from ketscale.jobs.slurm import site
from ketscale.measure.process import THREAD_VARIABLES, slurm_job

# Open MPI refuses to start as root (a container's usual user) without both.
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
# SLURM's warning before the time limit reaches every process of a step, and would end those that do not expect it
# (a shell, torchrun, Python while it starts). A rank that is ready for it listens again.
_DEAF = """sh -c 'trap "" USR1; exec "$@"' sh"""
# Ports below those that the kernel hands out; two jobs on one node, or two runs of one job, take different ones.
_PORT = "$((15000 + (SLURM_JOB_ID * 31 + SLURM_STEP_ID) % 15000))"
_RENDEZVOUS = (
    """sh -c 'trap "" USR1; exec torchrun --node-rank=$SLURM_NODEID """
    f"""--master-addr=$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1) --master-port={_PORT} "$@"' sh"""
)


def prefix(run: Run, srun_mpi: str | None = None) -> str:
    """What stands before `ketscale train ...` on the command line.

    A run binds its own ranks to cores (see measure/host.py), so launchers are told not to.

    Args:
        srun_mpi: inside a SLURM allocation, the kind of MPI that srun starts there (`srun --mpi=list`). srun then
            starts every run: each MPI rank, or one torchrun a node, or the one process; and when one of them dies
            it ends the others and names it. It shares the allocation with a step that this process may be in
            (`srun --pty bash`), for which it would wait otherwise.
    """
    variables = " ".join(f"{name}={run.threads}" for name in THREAD_VARIABLES)
    per_node = run.ranks // run.nodes
    launcher = BACKENDS[run.backend].launcher
    torchrun = launcher == "torchrun"
    if srun_mpi is not None:
        mpi = srun_mpi if launcher == "mpirun" else "none"
        tasks = 1 if torchrun else per_node
        srun = (
            f"env {variables} srun --overlap --mpi={mpi} --kill-on-bad-exit=1 --cpu-bind=none --nodes={run.nodes} "
            f"--ntasks={tasks * run.nodes} --ntasks-per-node={tasks} --cpus-per-task={per_node * run.threads // tasks}"
        )
        if torchrun and run.nodes > 1:
            return f"{srun} {_RENDEZVOUS} --nnodes={run.nodes} --nproc-per-node={per_node} --no-python"
        return f"{srun} {_DEAF}" + (
            f" torchrun --standalone --nproc-per-node={per_node} --no-python" if torchrun else ""
        )
    if launcher == "mpirun":
        return f"env {variables} {' '.join(_ROOT)} mpirun -n {run.ranks} --bind-to none"
    if torchrun:
        return f"env {variables} torchrun --standalone --nproc-per-node={per_node} --no-python"
    return f"env {variables}"


def prefix_here(run: Run) -> str:
    """The prefix where this process is: in an allocation that of srun, with the MPI that the site file names.

    Raises:
        UserError: in an allocation the site file is missing or broken.
    """
    return prefix(run, site.read_file().mpi if slurm_job() else None)
