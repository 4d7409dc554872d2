"""`ketscale recover`: clear what a killed Snakemake has left behind, so that the next call goes on where it stopped.

Jobs of the old call are cancelled (their runs save a checkpoint), locks are taken off, and finished runs are no longer
held for incomplete. Results, checkpoints and logs stay as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from ketscale import grid
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.jobs.slurm import queue
from ketscale.jobs.slurm.queue import Job
from ketscale.jobs.status.report import command
from ketscale.jobs.status.survey import SNAKEMAKE, Queue, marked, survey

# Both files of a run are declared outputs, and marked as such.
_OUTPUTS = (grid.RECORD, grid.HISTORY)
# Runs a call of Snakemake: all of their paths must fit on a command line.
_CHUNK = 300
_POLL_S = 5.0
_MESSAGE_S = 60.0
_PATIENCE_S = 180.0


def recover(config: Config, configfile: Path, wait: bool) -> None:
    """Make the current folder ready for the next call of Snakemake, and say each step.

    Args:
        config: the config.
        configfile: where it was read.
        wait: whether jobs that run are left to finish.

    Raises:
        UserError: a Snakemake of this folder is alive, or SLURM or Snakemake refuses.
    """
    alive = running_snakemake(Path.cwd())
    if alive is not None:
        raise UserError(f"Snakemake (process {alive}) still runs here; end it first (Ctrl-C)")
    if queue.available():
        _end_jobs(Path.cwd(), wait)
    options = [] if configfile == Path("config.yaml") else ["--configfile", str(configfile)]
    _unlock(options)
    # Without the queue, in which nothing is left.
    seen = survey(config, Path(), Queue(), datetime.now(UTC))
    done = [f"{config.results}/{one.run.folder}" for one in seen if one.state == "done"]
    _unmark(done, options)
    left = len(seen) - len(done)
    if left:
        _say(f"{_runs(len(done))} done, {left} left: {command(configfile)}")
    else:
        _say(f"all {_runs(len(done))} done; tables and report: {command(configfile)}")


def running_snakemake(folder: Path) -> int | None:
    """The process of a Snakemake on this host that drives `folder`, and is none that this process was started by."""
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid not in mine and _drives(process.cmdline()):
                where = process.cwd()
                if os.path.realpath(where) == os.path.realpath(folder):
                    return process.pid
        except psutil.Error:  # ended just now, or another user's
            continue
    return None


def _drives(command: Sequence[str]) -> bool:
    """Whether this is Snakemake by its program or module, and no job that another one has started."""
    # In `python /path/of/snakemake` and `python -m snakemake` alike the first word that is no option.
    words = [word for word in command[1:] if not word.startswith("-")]
    program = [*command[:1], *words[:1]] if _is_python(command) else command[:1]
    if not any(Path(word).name == "snakemake" for word in program):
        return False
    mode = command[command.index("--mode") + 1 :][:1] if "--mode" in command else []
    return mode not in (["remote"], ["subprocess"])


def _is_python(command: Sequence[str]) -> bool:
    return bool(command) and Path(command[0]).name.startswith("python")


def _end_jobs(folder: Path, wait: bool) -> None:
    found = queue.jobs(folder)
    if not found:
        _say("no jobs of this folder are in the queue")
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
                "see `squeue --me`, and run ketscale recover again once they are gone"
            )
        return
    _wait(folder, None)


def _wait(folder: Path, end: float | None) -> list[Job]:
    """The jobs that are still in the queue at `end`, by the monotonic clock (None: wait until none is)."""
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
    locks = SNAKEMAKE / "locks"
    if not locks.is_dir() or not any(locks.iterdir()):
        _say("the folder is not locked")
        return
    problem = _snakemake("--unlock", *options)
    if problem is not None:
        raise UserError(f"snakemake --unlock failed: {problem}")
    _say("took the lock off the folder")


def _unmark(done: Sequence[str], options: Sequence[str]) -> None:
    """Drop the marks of finished runs, given by their folders, that Snakemake saw start, but not end: it would train them again.

    Only theirs: Snakemake drops its note of a file's settings with the mark, by which it tells that they changed.
    """
    marks = marked(Path())
    folders = [folder for folder in done if not marks.isdisjoint(_outputs(folder))]
    for start in range(0, len(folders), _CHUNK):
        some = folders[start : start + _CHUNK]
        chunk = [path for folder in some for path in _outputs(folder) if path in marks]
        problem = _snakemake("--cleanup-metadata", *chunk, *options)
        # Its status says nothing: it is an error too where a file had a mark and no note, as after any kill.
        if not marked(Path()).isdisjoint(chunk):
            raise UserError(f"snakemake --cleanup-metadata failed: {problem or 'the marks are still there'}")
    what = f"{_runs(len(folders))} finished, but held for incomplete by Snakemake: kept as finished"
    _say(what if folders else "no finished run is held for incomplete")


def _outputs(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in _OUTPUTS]


def _snakemake(*arguments: str) -> str | None:
    """Run Snakemake quietly; None if it did what was asked, else its last words."""
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments], capture_output=True, text=True, errors="replace"
    )
    if done.returncode == 0:
        return None
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return said[-1] if said else f"exit status {done.returncode}"


def _jobs(jobs: Sequence[Job]) -> str:
    ids = " ".join(job.id for job in jobs[:10]) + (" ..." if len(jobs) > 10 else "")
    return f"{len(jobs)} job{'' if len(jobs) == 1 else 's'} ({ids})"


def _runs(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"


def _say(line: str) -> None:
    print(line, flush=True)
