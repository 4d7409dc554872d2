"""SLURM's queue: the jobs of this folder, and the state of one job."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ketscale.errors import UserError, short
from ketscale.jobs import snakemake_internals

# The executor names its jobs by one UUID per call, and puts the rule or the job group in the comment; what the job trains
# follows (see `submission`).
SUBMITTED = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_COMMENT = re.compile(r"^rule_(?P<pack>\S+?)_(?:wildcards_\S+|\w+)(?: |$)")
# What a call of Snakemake that submits keeps here, and what is there once it has begun to (see `submission`).
OF_CALL = snakemake_internals.FOLDER / "ketscale"
TRAINS = OF_CALL / "trains.json"
# The end of all that SLURM's programs say where they are installed without a cluster.
_NO_CLUSTER = "Could not establish a configuration source"
_OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)


@dataclass(frozen=True)
class Job:
    """A job in the queue that Snakemake has submitted; `pack` is its job group."""

    id: str
    state: str
    pack: str
    reason: str


class NoCluster(UserError):
    """SLURM's programs are installed, but find no cluster."""


def available(folder: Path = Path(), program: str = "squeue") -> bool:
    """Whether a SLURM cluster can be asked for the jobs of a folder, with this program.

    A program that finds no cluster counts as absent, unless the last call of Snakemake in the folder has submitted jobs:
    they may still be there, so asking for them is to say why it fails.
    """
    path = shutil.which(program)
    return path is not None and ((folder / TRAINS).exists() or _finds_cluster(path))


@functools.cache  # where it looks for one in the network, it takes seconds
def _finds_cluster(program: str) -> bool:
    # Asks no controller, but reads the configuration all the same.
    try:
        ask(program, "--version")
    except NoCluster:
        return False
    except UserError:
        return True  # to be said by whoever asks it for something
    return True


def jobs(folder: Path) -> list[Job]:
    """This user's jobs that Snakemake has submitted in `folder` and that have not ended.

    Raises:
        UserError: SLURM does not answer, or not in the form that was asked for.
    """
    found = []
    for line in ask("squeue", "--me", "-h", "-o", "%i|%T|%j|%k|%r|%Z").splitlines():
        if line.count("|") < 5:
            # A comment with a newline gives such lines, and its job may be one of this folder.
            raise UserError(
                f"squeue answered {short(repr(line))}, which is not a job in the form that was asked for"
            )
        job, state, name, comment, reason, where = line.split("|", 5)
        pack = pack_of(comment)
        if pack and SUBMITTED.match(name) and os.path.realpath(where) == os.path.realpath(folder):
            found.append(Job(job, state, pack, reason))
    return found


def pack_of(comment: str) -> str | None:
    """The job group, or the rule, in the comment of a job that Snakemake has submitted; None in another comment."""
    found = _COMMENT.match(comment)
    return found and found["pack"]


def cancel(found: list[Job]) -> None:
    """Ask SLURM to end these jobs; their runs save a checkpoint first.

    Raises:
        UserError: SLURM refuses.
    """
    ask("scancel", *(job.id for job in found))


def job_over(job: str) -> bool | None:
    """Whether the job and all its processes have ended; None if SLURM does not say."""
    try:
        states = ask("squeue", "-h", "-j", job, "-t", "all", "-o", "%T").split()
    except UserError as error:
        # SLURM forgets a job some minutes after its end.
        return True if "Invalid job id" in str(error) else None
    return all(state in _OVER for state in states) if states else None


def state(job: str) -> str:
    """The job's present state and reason, such as 'TIMEOUT TimeLimit'; '' if SLURM does not say."""
    return " ".join(re.findall(r"\b(?:JobState|Reason)=(\S+)", _shown(job)))


def restarts(job: str) -> int | None:
    """How often SLURM has requeued the job; None if it does not say."""
    found = re.search(r"\bRestarts=(\d+)", _shown(job))
    return int(found[1]) if found else None


def times(job: str) -> tuple[float, float] | None:
    """The seconds that a job of Snakemake's has run and that it may run; None for others and if SLURM does not say."""
    try:
        name, used, limit = ask("squeue", "-h", "-j", job, "-o", "%j|%M|%l").strip().split("|")
    except (UserError, ValueError):
        return None
    return (seconds(used), seconds(limit)) if SUBMITTED.match(name) else None


def seconds(told: str) -> float:
    """A time of SLURM's, such as '1-12:30:00' or 'infinite', in seconds."""
    days, _, clock = told.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        whole_days = int(days or 0)
    except ValueError:
        return float("inf")
    return whole_days * 86400 + sum(
        value * unit for value, unit in zip(reversed(parts), (1, 60, 3600), strict=False)
    )


def memory_mb(job: str) -> int | None:
    """The memory per node that the job asked for, in megabytes; None if SLURM does not say."""
    found = re.search(r"\bMinMemoryNode=([\d.]+)([MG])", _shown(job))
    return int(float(found[1]) * (1024 if found[2] == "G" else 1)) if found else None


def _shown(job: str) -> str:
    try:
        return ask("scontrol", "-o", "show", "job", job)
    except UserError:
        return ""


def ask(*command: str) -> str:
    """The output of a SLURM command.

    Raises:
        NoCluster: the command finds no cluster.
        UserError: the command is missing, does not answer or fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{command[0]} does not answer ({error}); is SLURM up?") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        if said and _NO_CLUSTER in said[-1]:
            raise NoCluster(f"SLURM's programs find no cluster on this machine ({said[-1]})")
        raise UserError(f"{command[0]} failed: {said[-1] if said else f'exit status {done.returncode}'}")
    return done.stdout
