"""Finds the state of every run of a study from its folder and SLURM's queue."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ketscale.config import Config, Protocol, Settings
from ketscale.errors import UserError
from ketscale.files import opened
from ketscale.grid import RECORD, Run
from ketscale.jobs import choice, finished, locks, records, supervise
from ketscale.jobs.slurm import queue as slurm
from ketscale.jobs.slurm import submission
from ketscale.jobs.slurm.packs import packs
from ketscale.jobs.slurm.queue import Job
from ketscale.jobs.slurm.site import Site
from ketscale.measure.form import EARLY_ENDS, Record
from ketscale.measure.record import Checked, check

# A run that is done has a record of these settings, with any status; the others have none that can be trusted.
STATES = ("done", "running", "waiting", "queued", "failed", "interrupted", "stale", "refused", "missing")
TROUBLE = ("failed", "interrupted", "stale", "refused")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
# Bytes at the end of a history that have its last two rows.
_TAIL = 4096


@dataclass(frozen=True)
class Seen:
    """A run and its state; fields that do not apply to the state are None or empty."""

    run: Run
    state: str
    reason: str = ""
    status: str | None = None  # in its record: completed, or why it ended early
    host: str | None = None
    job: str | None = None
    # A running or waiting run's start, a failed one's end, an interrupted one's last sign of life.
    at: str | None = None
    progress: str = ""
    saved: float | None = None  # when its newest checkpoint was written, in seconds since 1970
    # Used by its record with what interruptions cost it; without a record, by the last attempt.
    node_hours: float = 0.0
    launch: str | None = None  # equal for the runs that this attempt trained together
    record: Record | None = None  # of a run that is done

    def age_s(self, now: datetime) -> float:
        """Seconds since `at`."""
        return max(0.0, (now - time_of(self.at)).total_seconds())


@dataclass(frozen=True)
class Queue:
    """This folder's jobs in SLURM's queue, and the job group of each run; `problem` says why they are unknown.

    refusals: what sbatch says of those that it does not take, in lines.
    """

    jobs: tuple[Job, ...] = ()
    packs: Mapping[Run, str] = field(default_factory=dict)
    problem: str = ""
    available: bool = False
    refusals: tuple[str, ...] = ()

    def job_of(self, run: Run) -> Job | None:
        """The job of the run's job group; if there are several, a running one."""
        found = [j for j in self.jobs if j.pack == self.packs.get(run) and j.state != "COMPLETING"]
        return max(found, key=lambda job: job.state == "RUNNING", default=None)

    def is_running(self, job: str | None) -> bool:
        """Whether the job with this id is running."""
        return any(job == other.id and other.state == "RUNNING" for other in self.jobs)


def ask(config: Config, root: Path, site: Site | None) -> Queue:
    """The queue of this folder; if it does not answer, the report says so, and it is not an error."""
    if not slurm.available():
        return Queue()
    refusals = tuple(submission.in_words(root))
    try:
        jobs = tuple(slurm.jobs(root))
    except UserError as error:
        return Queue(problem=str(error), available=True, refusals=refusals)
    # Job groups depend on all runs of the config, whatever their state.
    named = packs(config.runs, config.timed, site, config.is_trial) if site else {}
    return Queue(jobs, named, available=True, refusals=refusals)


def survey(config: Config, root: Path, queue: Queue, now: datetime) -> list[Seen]:
    """Every run of a config with its state, in scheduling order."""
    results = root / config.results
    if os.path.lexists(results) and not results.is_dir():
        raise UserError(
            f"{config.results}: is not a folder, nor a link to one; move it away or set `results`"
        )
    checked = records.read(config, results).checked
    seen = []
    for run in config.runs:
        settings, found = config.settings(run), checked[run]
        kept = results / run.folder / finished.KEPT / RECORD
        if found.record is None and kept.exists():
            # Trained with another run; its own job is about to put it in its place.
            copy = check(kept, choice.resolved(settings, results), None)
            found = copy if copy.record else found
        seen.append(_see(settings, found, results, queue, queue.job_of(run), now))
    return seen


def time_of(text: str | None) -> datetime:
    """A time of a note; a time long ago if there is none."""
    return datetime.fromisoformat(text) if text else _LONG_AGO


def counts(seen: Iterable[Seen]) -> dict[str, int]:
    """The number of runs in each state, and with each early end; these are also counted as done."""
    found = Counter(one.state for one in seen)
    ended = Counter(one.status for one in seen if one.status)
    return {state: found[state] for state in STATES} | {status: ended[status] for status in EARLY_ENDS}


def _see(
    settings: Settings,
    found: Checked,
    results: Path,
    queue: Queue,
    job: Job | None,
    now: datetime,
) -> Seen:
    run = settings.run
    if found.record is not None:
        quiet = found.record.quiet
        busy = "" if quiet.quiet or not settings.protocol.timed else f"busy: {quiet.why}"
        lost_s = found.record.lost_s / (1 + len(found.record.cohort))
        hours = found.record.node_hours + lost_s * run.nodes / 3600
        why = found.why or busy
        return Seen(run, "done", why, status=found.state, node_hours=hours, record=found.record)
    folder = results / run.folder
    try:
        names = set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        names = set()
    note = supervise.read_note(folder) if supervise.NOTE in names else None
    saved = _saved(folder / "checkpoint") if "checkpoint" in names else None
    last = locks.last(folder)
    killed = last is not None and last.until is None
    tried_s = 0.0
    if last is not None:
        end = time_of(last.until).timestamp() if last.until else locks.last_write(folder)
        tried_s = max(0.0, end - time_of(last.since).timestamp())
    blank = Seen(
        run,
        "",
        saved=saved,
        node_hours=tried_s * run.nodes / 3600,
        launch=last.launch if last else None,
    )

    def seen(state: str, reason: str, of: Mapping[str, Any] | None = None) -> Seen:
        of = of or {}
        return replace(
            blank, state=state, reason=reason, host=of.get("host"), job=of.get("job"), at=of.get("at")
        )

    held = locks.holder(folder) if killed else None
    if held is not None:
        progress = _progress(folder / "checkpoint", settings.protocol)
        about = {"host": held.host, "job": held.job, "at": held.since}
        return replace(seen("running", "", about), progress=progress)
    # A run that failed in a job is not queued in it, though the job still trains the rest of its job group.
    if job is not None and not (job.state == "RUNNING" and note and note.get("job") == job.id):
        running = f"waits in its job group; job {job.id} is running"
        waits = f"{job.state.lower()}: {job.reason}"
        return seen("queued", running if job.state == "RUNNING" else waits, {"job": job.id})
    if found.why and RECORD not in names:
        # What is missing for a reason has a search of which no trial can be chosen.
        return seen("failed" if found.state == "missing" else found.state, found.why)
    if found.why:
        advice = "it will be trained again" if found.state == "missing" else "delete it and run it again"
        return seen(found.state, f"{found.why}; {advice}")
    if note is not None:
        reason = records.why_missing(folder) or f"its {supervise.NOTE} cannot be read; see train.log"
        return seen("failed", reason, {name: note.get(name) for name in ("job", "at")})
    if killed and last is not None:
        again = "start again, as it had no checkpoint" if saved is None else "resume from its checkpoint"
        reason = f"it ended without a message (killed, or its machine went down); it will {again}"
        return seen("interrupted", reason, {"host": last.host, "job": last.job, "at": last.since})
    return seen("missing", "")


def _saved(checkpoints: Path) -> float | None:
    """When the newest checkpoint was written; None if there is none."""
    times = []
    for path in checkpoints.glob("*.pt"):
        with contextlib.suppress(FileNotFoundError):  # it has just been replaced
            times.append(path.stat().st_mtime)
    return max(times, default=None)


def _progress(checkpoints: Path, protocol: Protocol) -> str:
    """The progress in the last whole row of the newest history, such as 'epoch 12 of 100'; '' if there is none."""
    unit = "epoch" if protocol.by_epochs else "step"
    try:
        newest = max(checkpoints.glob("*.csv"), key=lambda path: path.stat().st_mtime)
        with opened(newest) as file:
            place = file.readline().decode().rstrip("\n").split(",").index(unit)
            file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - _TAIL))
            # What follows the last line's end is a row that is being written.
            last = int(file.read().split(b"\n")[-2].split(b",")[place])
    except (OSError, ValueError, IndexError):
        return ""
    # Epochs count from 0, and a row is written at the end of each.
    return f"{unit} {last + (unit == 'epoch')} of {protocol.epochs or protocol.steps}"
