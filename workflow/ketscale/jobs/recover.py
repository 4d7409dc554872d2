"""What a killed Snakemake leaves is cleaned up, by `ketscale recover` or by the next call on the same host.

Its jobs are cancelled (their runs save a checkpoint), its locks are removed, and runs that have finished are kept from
being trained again. Results, checkpoints and logs stay as they are.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ketscale import grid
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.jobs import cohorts, driver, records, snakemake_internals
from ketscale.jobs.slurm import queue
from ketscale.jobs.slurm.queue import Job
from ketscale.words import counted, say

# The two files of a run that are declared outputs, and marked as such.
_OUTPUTS = (grid.RECORD, grid.HISTORY)
_POLL_S = 5.0
_PATIENCE_S = 180.0


def recover(config: Config, configfile: Path, ask_queue: bool = True) -> None:
    """Make the current folder ready for the next call of Snakemake, and report each step.

    Args:
        config: the config.
        configfile: the file that it was read from.
        ask_queue: whether SLURM is asked for jobs of this folder; if not, the user says that there are none.

    Raises:
        UserError: a Snakemake still runs in this folder, or SLURM fails.
    """
    alive = driver.running(Path())
    if alive is not None:
        raise UserError(f"Snakemake (process {alive}) still runs here; end it first (Ctrl-C)")
    _end_jobs(config, ask_queue)
    _say("removed the lock on the folder" if snakemake_internals.locks() else "the folder is not locked")
    snakemake_internals.unlock()
    driver.end()
    queue.TRAINS.unlink(missing_ok=True)
    done, left, marked = _unmark(config)
    what = f"{_runs(marked)} finished, though marked as incomplete by Snakemake: removed the marks"
    _say(what if marked else "no finished run is marked as incomplete")
    what = f"{_runs(done)} done, {left} left" if left else f"all {_runs(done)} done; tables and report"
    _say(f"{what}: {driver.command(configfile)}")


def after_kill(config: Config, dry: bool) -> None:
    """Before a call of Snakemake plans its jobs: if the last one was killed on this host, remove what it has left.

    Its jobs in SLURM's queue are left to `begin`. A dry run removes nothing, since no lock stops it.
    """
    if not snakemake_internals.locks():
        return
    call = driver.last()
    who = f"process {call.process.pid} on {call.process.host}" if call and call.process else "it left no note"
    over = call.over if call and call.process else None
    said = ""
    if over is None:
        said = f"this folder is locked by another Snakemake ({who}); if it no longer runs, type: ketscale recover"
    elif over and driver.running(Path()) is None and dry:
        said = f"the last Snakemake here ({who}) was killed: the next call removes its lock, and keeps what finished since"
    elif over and driver.running(Path()) is None:
        snakemake_internals.unlock()
        marked = _unmark(config)[2]
        kept = f", and kept {counted(marked, 'run')} that finished since" if marked else ""
        said = f"the last Snakemake here ({who}) was killed: removed its lock{kept}"
    if said:
        say(said)


def begin(config: Config, workflow: Any) -> None:
    """At the start of a call of Snakemake: end what a killed one has left in SLURM's queue, and note this call.

    Raises:
        UserError: SLURM fails, or jobs do not end.
    """
    call = driver.last()
    if call and call.process and call.over:
        with contextlib.redirect_stdout(sys.stderr):
            _end_jobs(config)
    queue.TRAINS.unlink(missing_ok=True)
    driver.begin(workflow)


def _end_jobs(config: Config, ask_queue: bool = True) -> None:
    """End the jobs of the last call, and forget with which runs they were to train together.

    Raises:
        UserError: SLURM fails, or jobs do not end.
    """
    if ask_queue and queue.available():
        _cancel(Path.cwd())
    shutil.rmtree(Path(config.results) / cohorts.FOLDER, ignore_errors=True)


def _unmark(config: Config) -> tuple[int, int, int]:
    """Remove Snakemake's marks of incomplete files for finished runs.

    Snakemake saw these runs start but not end, and would train them again. Other marks stay: with a mark goes its note of
    the file's settings, by which Snakemake notices that they changed.

    Returns:
        The numbers of runs that are done and left, and of those whose marks were removed.
    """
    marks, marked = snakemake_internals.incomplete(Path()), set()
    checked = records.read(config, Path(config.results)).checked
    done = [run for run, found in checked.items() if found.record is not None]
    for run in done:
        for name in _OUTPUTS:
            if mark := marks.get(f"{config.results}/{run.folder}/{name}"):
                snakemake_internals.unmark(mark)
                marked.add(run)
    return len(done), len(checked) - len(done), len(marked)


def _cancel(folder: Path) -> None:
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
    queue.cancel(found)
    _say(f"cancelled {_jobs(found)}; their runs save a checkpoint")
    end = time.monotonic() + _PATIENCE_S
    while left := queue.jobs(folder):
        if time.monotonic() >= end:
            raise UserError(
                f"{_jobs(left)} still in the queue {_PATIENCE_S / 60:g} min after scancel; "
                "check `squeue --me`, and run ketscale recover again when they are gone"
            )
        time.sleep(_POLL_S)
    _say("no job of this folder is left in the queue")


def _jobs(jobs: Sequence[Job]) -> str:
    ids = " ".join(job.id for job in jobs[:10]) + (" ..." if len(jobs) > 10 else "")
    return f"{counted(len(jobs), 'job')} ({ids})"


def _runs(number: int) -> str:
    return f"{counted(number, 'run')} {'is' if number == 1 else 'are'}"


def _say(line: str) -> None:
    print(line, flush=True)
