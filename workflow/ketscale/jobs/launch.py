"""The shell prefix that starts a run's ranks with their threads set, and what the commands of jobs need.

Imports next to nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ketscale.errors import UserError
from ketscale.grid import BACKENDS, Run
from ketscale.process import THREAD_VARIABLES, slurm_job

# Variables by which torchrun, Open MPI and MPICH give a process its rank, and options of torchrun (PET_*). PMIx's
# and SLURM's, which may be needed to start anything, are replaced for each rank.
_OF_RANKS = re.compile(
    r"((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|(TORCHELASTIC|PET|OMPI_COMM_WORLD)_.*"
    r"|PMI_(RANK|SIZE)|MPI_LOCAL(RANKID|NRANKS))"
)
# Open MPI needs both to start as root, which is the usual user in a container.
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
# Open MPI 4 looks for ssh, which containers may lack, also where all ranks are started here; any program will do.
_NO_SSH = '"OMPI_MCA_plm_rsh_agent=${OMPI_MCA_plm_rsh_agent:-sh}"'
# The Python of this process. With -P no file of the folder that it is started in shadows a module.
_PYTHON = shlex.quote(sys.executable)
# Ranks need no files for what they say, for which torchrun would leave a folder behind.
_TORCHRUN = "-P -m torch.distributed.run --log-dir=/dev/null"
# Ports below the kernel's own range; two jobs on one node, or two runs of one job, get different ports.
_PORT = "$((15000 + (SLURM_JOB_ID * 31 + SLURM_STEP_ID) % 15000))"
_RENDEZVOUS = (
    f"""sh -c 'exec "$0" {_TORCHRUN} --node-rank=$SLURM_NODEID """
    f"""--master-addr=$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1) --master-port={_PORT} "$@"' {_PYTHON}"""
)

# Ranks of one node meet on it; its own name may not resolve to an address.
_HERE = "--standalone --local-addr=localhost"
_PACKAGE = Path(__file__).resolve().parents[1]


def prefix(run: Run, srun_mpi: str | None = None) -> str:
    """The part of the command line before `ketscale train ...`.

    A run binds its own ranks to cores (see measure/host.py), so launchers must not.

    Args:
        srun_mpi: inside a SLURM allocation, the kind of MPI that srun starts (`srun --mpi=list`). srun then starts
            every run: each MPI rank, or one torchrun per node, or the single process. If one of them dies, srun names
            it and ends the others. With --overlap it does not wait for the step that this process may itself be in
            (`srun --pty bash`).
    """
    variables = " ".join(f"{name}={run.threads}" for name in THREAD_VARIABLES)
    per_node = run.ranks // run.nodes
    launcher = BACKENDS[run.backend].launcher
    torchrun = launcher == "torchrun"
    here = f"{_PYTHON} {_TORCHRUN} {_HERE} --nproc-per-node={per_node} --no-python" if torchrun else ""
    if srun_mpi is not None:
        mpi = srun_mpi if launcher == "mpirun" else "none"
        tasks = 1 if torchrun else per_node
        srun = (
            f"env {variables} srun --overlap --mpi={mpi} --kill-on-bad-exit=1 --cpu-bind=none --nodes={run.nodes} "
            f"--ntasks={tasks * run.nodes} --ntasks-per-node={tasks} --cpus-per-task={per_node * run.threads // tasks}"
        )
        if torchrun and run.nodes > 1:
            return f"{srun} {_RENDEZVOUS} --nnodes={run.nodes} --nproc-per-node={per_node} --no-python"
        return f"{srun} {here}".rstrip()
    if launcher == "mpirun":
        return f"env {variables} {' '.join(_ROOT)} {_NO_SSH} mpirun -n {run.ranks} --bind-to none"
    return f"env {variables} {here}".rstrip()


def environment() -> dict[str, str]:
    """This process's variables, for what it starts: launchers of this Python's environment come before any others.

    Variables by which a launcher numbers its ranks are removed: this process may have those of another.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {name: value for name, value in os.environ.items() if not _OF_RANKS.fullmatch(name)} | {
        "PATH": path
    }


def prefix_here(run: Run) -> str:
    """The prefix for this process: inside an allocation srun, with the MPI that the site file names.

    Raises:
        UserError: inside an allocation, the site file is missing or invalid, or there is no srun.
    """
    if not slurm_job():
        return prefix(run)
    from ketscale.jobs.slurm import site

    if shutil.which("srun") is None:
        raise UserError(
            f"SLURM_JOB_ID is {slurm_job()}, so srun should start the ranks, but there is no srun on the PATH: unset "
            "SLURM_JOB_ID outside of a job of SLURM"
        )
    return prefix(run, site.read_file().mpi)


def check_package() -> None:
    """Check that jobs, which call the `ketscale` that PATH finds first, use the package of this process.

    Raises:
        UserError: there is no such command, or it is of another package.
    """
    command = shutil.which("ketscale")
    if command is None:
        raise UserError(f"no command `ketscale` is in PATH; activate the environment of {sys.executable}")
    answer = subprocess.run([command, "--version"], capture_output=True, text=True, errors="replace").stdout
    folder = answer.strip().partition(" from ")[2]
    if not folder or Path(folder).resolve() != _PACKAGE:
        raise UserError(
            f"jobs would call {command}, which is of another package ({folder or 'unknown'}) than the one that "
            f"{sys.executable} imports ({_PACKAGE}); activate the environment of that Python"
        )
