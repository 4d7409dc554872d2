"""`ketscale recover`: clean up after a killed Snakemake, so that the next call continues where it stopped.

Cancels the jobs of the old call (their runs save a checkpoint), removes locks, and tells Snakemake that finished runs
are complete. Results, checkpoints and logs stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ketscale import grid, process
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.jobs import cohorts, snakemake_internals
from ketscale.jobs.slurm import queue
from ketscale.jobs.slurm.queue import Job
from ketscale.jobs.status.report import command
from ketscale.jobs.status.survey import Queue, survey
from ketscale.words import counted

# The two files of a run that are declared outputs, and marked as such.
_OUTPUTS = (grid.RECORD, grid.HISTORY)
# Runs per call of Snakemake: all their paths must fit on a command line.
_CHUNK = 300
_POLL_S = 5.0
_MESSAGE_S = 60.0
_PATIENCE_S = 180.0


def recover(config: Config, configfile: Path, wait: bool, ask_queue: bool = True) -> None:
    """Make the current folder ready for the next call of Snakemake, and report each step.

    Args:
        config: the config.
        configfile: the file that it was read from.
        wait: whether running jobs may finish.
        ask_queue: whether SLURM is asked for jobs of this folder; if not, the user says that there are none.

    Raises:
        UserError: a Snakemake still runs in this folder, or SLURM or Snakemake fails.
    """
    alive = running_snakemake(Path.cwd())
    if alive is not None:
        raise UserError(f"Snakemake (process {alive}) still runs here; end it first (Ctrl-C)")
    if ask_queue and queue.available():
        _end_jobs(Path.cwd(), wait)
    options = [] if configfile == Path("config.yaml") else ["--configfile", str(configfile)]
    _unlock(options)
    shutil.rmtree(Path(config.results) / cohorts.FOLDER, ignore_errors=True)
    # The queue is empty, since no job is left in it.
    seen = survey(config, Path(), Queue(), datetime.now(UTC))
    done = [f"{config.results}/{one.run.folder}" for one in seen if one.state == "done"]
    _unmark(done, options)
    left = len(seen) - len(done)
    if left:
        _say(f"{_runs(len(done))} done, {left} left: {command(configfile)}")
    else:
        _say(f"all {_runs(len(done))} done; tables and report: {command(configfile)}")


def running_snakemake(folder: Path) -> int | None:
    """The id of a Snakemake process on this host that works on `folder` and did not start this process."""
    mine = {os.getpid(), *process.ancestors()}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            drives = pid not in mine and _drives(process.command_of(pid))
            if drives and os.path.samefile(f"/proc/{pid}/cwd", folder):
                return pid
    return None


def _drives(command: Sequence[str]) -> bool:
    """Whether a command line is Snakemake itself, not a job that it has started."""
    # In both `python /path/of/snakemake` and `python -m snakemake` it is the first word that is not an option.
    words = [word for word in command[1:] if not word.startswith("-")]
    program = [*command[:1], *words[:1]] if _is_python(command) else command[:1]
    if not any(Path(word).name == "snakemake" for word in program):
        return False
    mode = command[command.index("--mode") + 1 :][:1] if "--mode" in command else []
    return mode not in (["remote"], ["subprocess"])


def _is_python(command: Sequence[str]) -> bool:
    return bool(command) and Path(command[0]).name.startswith("python")


def _end_jobs(folder: Path, wait: bool) -> None:
    try:
        found = queue.jobs(folder)
    except UserError as error:
        # An error is not taken for an empty queue: a job that is still there would train beside the next call.
        raise UserError(
            str(error), "if you know that no job of this folder is in the queue: ketscale recover --no-queue"
        ) from None
    if not found:
        _say("the queue has no jobs of this folder")
        return
    ended = [job for job in found if job.state == "PENDING"] if wait else found
    if ended:
        queue.cancel(ended)
        save = "" if wait else "; their runs save a checkpoint"
        _say(f"cancelled {_jobs(ended)}{save}")
    if not wait:
        left = _wait(folder, time.monotonic() + _PATIENCE_S)
        if left:
            raise UserError(
                f"{_jobs(left)} still in the queue {_PATIENCE_S / 60:g} min after scancel; "
                "check `squeue --me`, and run ketscale recover again when they are gone"
            )
        return
    _wait(folder, None)


def _wait(folder: Path, end: float | None) -> list[Job]:
    """Wait until no job is in the queue, or until `end` on the monotonic clock; returns the jobs that remain."""
    said = float("-inf")
    while left := queue.jobs(folder):
        now = time.monotonic()
        if end is not None and now >= end:
            return left
        if now - said >= _MESSAGE_S:
            _say(f"waiting for {_jobs(left)} to end")
            said = now
        time.sleep(_POLL_S)
    _say("no job of this folder is left in the queue")
    return []


def _unlock(options: Sequence[str]) -> None:
    locks = snakemake_internals.FOLDER / "locks"
    if not locks.is_dir() or not any(locks.iterdir()):
        _say("the folder is not locked")
        return
    problem = _snakemake("--unlock", *options)
    if problem is not None:
        raise UserError(f"snakemake --unlock failed: {problem}")
    _say("removed the lock on the folder")


def _unmark(done: Sequence[str], options: Sequence[str]) -> None:
    """Remove Snakemake's marks of incomplete files for finished runs, which are given by their folders.

    Snakemake saw these runs start but not end, and would train them again. Other marks stay: with a mark Snakemake
    drops its note of a file's settings, by which it notices that they changed.
    """
    marks = snakemake_internals.incomplete(Path())
    folders = [folder for folder in done if not marks.isdisjoint(_outputs(folder))]
    for start in range(0, len(folders), _CHUNK):
        some = folders[start : start + _CHUNK]
        chunk = [path for folder in some for path in _outputs(folder) if path in marks]
        problem = _snakemake("--cleanup-metadata", *chunk, *options)
        # The exit status does not tell: it is an error also if a file had a mark but no note, as after any kill.
        if not snakemake_internals.incomplete(Path()).isdisjoint(chunk):
            raise UserError(f"snakemake --cleanup-metadata failed: {problem or 'the marks are still there'}")
    what = f"{_runs(len(folders))} finished, though marked as incomplete by Snakemake: removed the marks"
    _say(what if folders else "no finished run is marked as incomplete")


def _outputs(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in _OUTPUTS]


def _snakemake(*arguments: str) -> str | None:
    """Run Snakemake quietly; None if it succeeded, else the last line of its output."""
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments], capture_output=True, text=True, errors="replace"
    )
    if done.returncode == 0:
        return None
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return said[-1] if said else f"exit status {done.returncode}"


def _jobs(jobs: Sequence[Job]) -> str:
    ids = " ".join(job.id for job in jobs[:10]) + (" ..." if len(jobs) > 10 else "")
    return f"{counted(len(jobs), 'job')} ({ids})"


def _runs(number: int) -> str:
    return f"{counted(number, 'run')} {'is' if number == 1 else 'are'}"


def _say(line: str) -> None:
    print(line, flush=True)
