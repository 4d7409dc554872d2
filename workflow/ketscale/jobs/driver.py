"""The Snakemake that works in a folder: its lock there, and how it is called.

Snakemake's own locks name no process and outlive a killed one, so the profiles switch them off (`nolock`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from pathlib import Path

from ketscale import process
from ketscale.errors import UserError
from ketscale.jobs import locks
from ketscale.jobs.locks import Lock
from ketscale.jobs.slurm import queue
from ketscale.words import counted, say

# What a call keeps in Snakemake's own folder; its lock is there too.
FOLDER = queue.OF_CALL
# A file that is as old as the last call.
BEGAN = FOLDER / "began"
# A new call waits no longer for what a killed one has left in the queue.
_CANCELLED_S, _POLL_S = 180.0, 5.0
# The checkout that this package is in, if it is in one.
CHECKOUT = Path(__file__).resolve().parents[3]


def begin() -> Lock:
    """Take the lock of this folder, end what a killed call has left in SLURM's queue, and name this call.

    Raises:
        UserError: another Snakemake works here, or SLURM does not end the jobs of a killed one.
    """
    lock = Lock(FOLDER)
    if not lock.acquire():
        raise UserError(
            f"another Snakemake works in this folder ({locks.last(FOLDER)}): let it end, or end it"
        )
    if lock.former is not None:
        say(f"the last Snakemake here was killed ({lock.former})")
        if queue.available():
            _cancel_jobs()
    # Snakemake would restore what an earlier call has left there over what is here now.
    shutil.rmtree(FOLDER.parent / "backups", ignore_errors=True)
    os.environ[process.CALL] = os.urandom(16).hex()
    BEGAN.touch()
    return lock


def _cancel_jobs() -> None:
    """End this folder's jobs in the queue; their runs save a checkpoint."""
    jobs = _in_queue()
    if not jobs:
        return
    queue.cancel(jobs)
    say(f"cancelled its {counted(len(jobs), 'job')} in the queue ({', '.join(job.id for job in jobs[:10])})")
    end = time.monotonic() + _CANCELLED_S
    while waiting := _in_queue():
        if time.monotonic() >= end:
            raise UserError(f"{counted(len(waiting), 'job')} of it cannot be cancelled; see `squeue --me`")
        time.sleep(_POLL_S)


def _in_queue() -> list[queue.Job]:
    """This folder's jobs, without those that SLURM clears up after: a dead node may do so for hours."""
    return [job for job in queue.jobs(Path()) if job.state != "COMPLETING"]


def option(configfile: Path) -> str:
    """The option by which a command of `ketscale` is about a config, as it is typed behind it."""
    return "" if configfile == Path("config.yaml") else f" --config {shlex.quote(str(configfile))}"


def command(configfile: Path) -> str:
    """The call of Snakemake that trains what is left of a config, as it is typed in this folder.

    Paths of records may be appended: --configfile, which reads all names after it, is not the last option.
    """
    words, profile = ["snakemake"], "slurm" if queue.available() else "profiles/local"
    here = Path("Snakefile").exists() or Path("workflow/Snakefile").exists()
    if not here and (CHECKOUT / "Snakefile").exists():
        words += ["-s", str(CHECKOUT / "Snakefile")]
        if not Path("profiles", Path(profile).name).exists():
            profile = str(CHECKOUT / "profiles" / Path(profile).name)
    if configfile != Path("config.yaml"):
        words += ["--configfile", str(configfile)]
    return shlex.join([*words, "--profile", profile])
