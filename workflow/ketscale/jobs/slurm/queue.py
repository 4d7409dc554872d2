"""SLURM's queue: the jobs of this folder, and the state of one job."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ketscale.errors import UserError

# The executor names its jobs by one UUID per call, and puts the rule or the job group in the comment.
SUBMITTED = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_COMMENT = re.compile(r"^rule_(?P<name>\S+?)_(?:wildcards_\S+|\w+)$")


@dataclass(frozen=True)
class Job:
    """A job in the queue that Snakemake has submitted; `pack` is its job group, and `comment` has its wildcards too."""

    id: str
    state: str
    pack: str
    reason: str
    comment: str = ""


def available() -> bool:
    """Whether there is a SLURM cluster to ask; its programs may be installed without one."""
    path = shutil.which("squeue")
    return path is not None and _finds_cluster(path)


@functools.cache  # where it looks for one in the network, it takes seconds
def _finds_cluster(program: str) -> bool:
    # Asks no controller, but reads the configuration all the same.
    try:
        ask(program, "--version")
    except UserError as error:
        # Other faults are reported when something is requested.
        return "Could not establish a configuration source" not in str(error)
    return True


def jobs(folder: Path) -> list[Job]:
    """This user's jobs that Snakemake has submitted in `folder` and that have not ended.

    Raises:
        UserError: SLURM does not answer.
    """
    own = []
    for line in ask("squeue", "--me", "-h", "-o", "%i|%T|%j|%k|%r|%Z").splitlines():
        # Comments of other jobs may have any form.
        job, state, name, comment, reason, where = (*line.split("|", 5), *[""] * 5)[:6]
        pack = _COMMENT.match(comment)
        if pack and SUBMITTED.match(name) and os.path.realpath(where) == os.path.realpath(folder):
            own.append(Job(job, state, pack["name"], reason, comment))
    return own


def cancel(jobs: list[Job]) -> None:
    """Have SLURM end these jobs, if there are any; their runs save a checkpoint first. A UserError says if it fails."""
    if jobs:
        ask("scancel", *(job.id for job in jobs))


def job_over(job: str) -> bool:
    """Whether a job has ended; False if SLURM does not say."""
    try:
        return not ask("squeue", "-h", "-j", job, "-o", "%T").strip()
    except UserError as error:
        # SLURM forgets a job some minutes after its end.
        return "Invalid job id" in str(error)


def state(job: str | None) -> str:
    """The state and reason of a job that has not just begun to run, such as 'TIMEOUT TimeLimit'; '' if unknown."""
    try:
        answer = ask("scontrol", "-o", "show", "job", job) if job else ""
    except UserError:
        return ""
    state = " ".join(re.findall(r"\b(?:JobState|Reason)=(\S+)", answer))
    return "" if state == "RUNNING None" else state.removesuffix(" None")


def remaining_s(job: str) -> float:
    """The seconds that a job of Snakemake's may still run; infinite for others and if SLURM does not say."""
    try:
        name, limit = ask("squeue", "-h", "-j", job, "-o", "%j|%L").strip().split("|")
    except (UserError, ValueError):
        return float("inf")
    return seconds(limit) if SUBMITTED.match(name) else float("inf")


def seconds(words: str) -> float:
    """A time of SLURM's, such as '1-12:30:00', in seconds; infinite for words such as 'UNLIMITED'."""
    days, _, clock = words.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        whole_days = int(days or 0)
    except ValueError:
        return float("inf")
    return whole_days * 86400 + sum(
        value * unit for value, unit in zip(reversed(parts), (1, 60, 3600), strict=False)
    )


def ask(*command: str) -> str:
    """The output of a SLURM command.

    Raises:
        UserError: the command is missing, does not answer or fails.
    """
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"{command[0]} does not answer ({error}); is this the login node of a SLURM cluster?"
        ) from None
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise UserError(f"{command[0]} failed: {lines[-1] if lines else f'exit status {result.returncode}'}")
    return result.stdout
