"""The Snakemake that works in a folder: its lock there, and how the last one was called.

Snakemake's own locks name no process and outlive a killed one, so the profiles switch them off (`nolock`).
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from ketscale import process
from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.jobs import locks
from ketscale.jobs.locks import Lock
from ketscale.jobs.slurm import queue
from ketscale.words import counted, say

# What a call keeps in Snakemake's own folder; its lock is there too.
FOLDER = queue.OF_CALL
NOTE = FOLDER / "call.json"
# A new call waits no longer for what a killed one has left in the queue.
_CANCELLED_S, _POLL_S = 180.0, 5.0
# The Snakefile of the checkout that this package is in, if it is in one.
_OWN = Path(__file__).resolve().parents[3] / "Snakefile"


class Call(msgspec.Struct, frozen=True):
    """A call of Snakemake.

    snakefile: its absolute path. config: its path from this folder. profile: as it was typed; None without one.
    """

    snakefile: str
    config: str | None
    profile: str | None


def last(folder: Path = Path()) -> Call | None:
    """The last call in a folder; None if it left no note, or one that cannot be read."""
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Call)
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None


def given(*options: str) -> list[list[str]]:
    """What this call of Snakemake names after an option, each time that it has it; Snakemake itself tells the last at most."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(*options, dest="named", nargs="*", action="append", default=[])
    found: list[list[str]] = parser.parse_known_args(sys.argv[1:])[0].named
    return found


def begin(workflow: Any) -> Lock:
    """Take the lock of this folder, end what a killed call has left in SLURM's queue, and note and name this call.

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
    named = [name for names in given("--profile") for name in names[:1]]
    profile = named[-1] if named else os.environ.get("SNAKEMAKE_PROFILE")
    config = next((os.path.relpath(path) for path in reversed(workflow.configfiles)), None)
    note = Call(workflow.main_snakefile, config, profile)
    write_atomic(NOTE, msgspec.json.format(msgspec.json.encode(note)) + b"\n")
    return lock


def _cancel_jobs() -> None:
    """End this folder's jobs in the queue; their runs save a checkpoint."""
    jobs = _in_queue()
    if not jobs:
        return
    queue.cancel(jobs)
    say(f"cancelled its {counted(len(jobs), 'job')} in the queue ({', '.join(job.id for job in jobs[:10])})")
    end = time.monotonic() + _CANCELLED_S
    while left := _in_queue():
        if time.monotonic() >= end:
            raise UserError(f"{counted(len(left), 'job')} of it cannot be cancelled; see `squeue --me`")
        time.sleep(_POLL_S)


def _in_queue() -> list[queue.Job]:
    """This folder's jobs, without those that SLURM clears up after: a dead node may do so for hours."""
    return [job for job in queue.jobs(Path()) if job.state != "COMPLETING"]


def command(configfile: Path) -> str:
    """The call of Snakemake that trains what is left of a config, as it is typed in this folder.

    Paths of records may be appended: --configfile, which takes all names after it, does not stand last.
    """
    note, words, here = last(), ["snakemake"], Path("Snakefile")
    noted = [Path(note.snakefile)] if note else []
    snakefile = next(filter(Path.is_file, [*noted, here, _OWN]), None)
    profile = (note and note.profile) or ("slurm" if queue.available() else "profiles/local")
    if snakefile is not None:
        if not here.exists() or not here.samefile(snakefile):
            words += ["-s", str(snakefile)]
        if not Path(profile).exists() and (beside := snakefile.parent / profile).exists():
            profile = str(beside)
    if configfile != Path("config.yaml"):
        words += ["--configfile", str(configfile)]
    return shlex.join([*words, "--profile", profile])
