"""Where every run of a study stands, by what lies in its folder and in SLURM's queue."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ketscale import grid
from ketscale.config import Config, Protocol, Settings
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import finished, lease, supervise
from ketscale.jobs.slurm import queue as slurm
from ketscale.jobs.slurm.packs import packs
from ketscale.jobs.slurm.queue import Job
from ketscale.jobs.slurm.site import Site
from ketscale.measure.record import check

# done has a record of these settings, whatever its status; the others have none to trust.
STATES = ("done", "running", "queued", "failed", "interrupted", "stale", "missing")
TROUBLE = ("failed", "interrupted", "stale")
SNAKEMAKE = Path(".snakemake")
# A lease that was renewed within so many of its beats counts as held.
_BEATS = 5
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Seen:
    """A run and its state; what does not go with the state is None or empty."""

    run: Run
    state: str
    reason: str = ""
    status: str | None = None  # of its record: completed, diverged or out_of_memory
    wall_s: float | None = None  # what it took, where that can be told from its record
    host: str | None = None
    job: str | None = None
    at: str | None = None  # a running run's start, a failed one's end, an interrupted one's last sign of life
    progress: str = ""
    checkpoint: bool = False

    def age_s(self, now: datetime) -> float:
        """Seconds since `at`."""
        return max(0.0, (now - time_of(self.at)).total_seconds())


@dataclass(frozen=True)
class Queue:
    """This folder's jobs in SLURM's queue, and the pack of each run; `problem` says why they are unknown."""

    jobs: tuple[Job, ...] = ()
    packs: Mapping[Run, str] = field(default_factory=dict)
    problem: str = ""
    available: bool = False

    def job_of(self, run: Run) -> Job | None:
        """The job of the run's pack: the one that runs, if there are several."""
        found = [j for j in self.jobs if j.pack == self.packs.get(run) and j.state in ("RUNNING", "PENDING")]
        return max(found, key=lambda job: job.state == "RUNNING", default=None)

    def is_running(self, job: str | None) -> bool:
        """Whether the job of this id runs."""
        return any(job == other.id and other.state == "RUNNING" for other in self.jobs)


def ask(config: Config, root: Path, site: Site | None) -> Queue:
    """The queue of this folder; one that does not answer is a line of the report, and no error."""
    if not slurm.available():
        return Queue()
    try:
        jobs = tuple(slurm.jobs(root))
    except UserError as error:
        return Queue(problem=str(error), available=True)
    # Packs depend on all runs of the config, whatever has become of them.
    named = packs(config.runs, config.timed, site) if site else {}
    return Queue(jobs, named, available=True)


def survey(config: Config, root: Path, queue: Queue, now: datetime) -> list[Seen]:
    """Every run of a config with its state, in scheduling order."""
    results = root / config.results
    features = finished.features_hashes(config, results)
    submitted = marked(root) if queue.jobs else set()
    seen = []
    for run in config.runs:
        job = queue.job_of(run) if f"{config.results}/{run.path}" in submitted else None
        seen.append(_see(config.settings(run), features[run.workload], results, queue, job, now))
    return seen


def marked(root: Path) -> set[str]:
    """The files that Snakemake holds for incomplete: those of submitted jobs, and of jobs that it did not see end.

    Each mark's name is the path in base64, which where it is too long for one name goes on in a folder whose name
    begins with @.
    """
    folder = root / SNAKEMAKE / "incomplete"
    found = set()
    for mark in folder.rglob("*"):
        if not mark.is_dir():
            name = "".join(part.removeprefix("@") for part in mark.relative_to(folder).parts)
            try:
                found.add(urlsafe_b64decode(name).decode())
            except ValueError:
                continue
    return found


def counts(seen: Iterable[Seen]) -> dict[str, int]:
    """How many runs are in each state; diverged and out_of_memory are also among those done."""
    found = Counter(one.state for one in seen)
    ended = Counter(one.status for one in seen if one.status)
    return {state: found[state] for state in STATES} | {
        status: ended[status] for status in ("diverged", "out_of_memory")
    }


def _see(
    settings: Settings,
    features: str | None,
    results: Path,
    queue: Queue,
    job: Job | None,
    now: datetime,
) -> Seen:
    run = settings.run
    folder = results / run.folder
    try:
        names = set(os.listdir(folder))
    except OSError:
        names = set()
    found = check(folder / grid.RECORD, run, settings.hash, features)
    if found.record is not None:
        return Seen(run, "done", found.why, status=found.state, wall_s=_wall_s(found.record))
    note = supervise.read_note(folder) if supervise.NOTE in names else None
    held = lease.read(folder) if "lease" in names else None
    checkpoint = "checkpoint" in names and any((folder / "checkpoint").glob("*.pt"))
    if held and not held["released"] and is_alive(held, note, queue, now):
        progress = _progress(folder / grid.HISTORY, settings.protocol)
        return Seen(
            run,
            "running",
            host=held["host"],
            job=held["job"],
            at=held["since"],
            progress=progress,
            checkpoint=checkpoint,
        )
    # A run that has failed in the very job that now trains the rest of its pack is not tried again by it.
    if job is not None and not (job.state == "RUNNING" and note and note.get("job") == job.id):
        waits = (
            f"waits in its pack, job {job.id} runs" if job.state == "RUNNING" else f"pending: {job.reason}"
        )
        return Seen(run, "queued", waits, job=job.id, checkpoint=checkpoint)
    if found.why:
        return Seen(run, "stale", f"{found.why}; delete it and run it again", checkpoint=checkpoint)
    if note is not None:
        reason = str(note.get("reason") or f"its {supervise.NOTE} cannot be read; see train.log")
        return Seen(run, "failed", reason, job=note.get("job"), at=note.get("at"), checkpoint=checkpoint)
    if held is not None and not held.get("released"):
        reason = "it ended without a word (killed, or its machine went down); " + (
            "it goes on from its checkpoint" if checkpoint else "it starts anew, as it had no checkpoint yet"
        )
        return Seen(
            run,
            "interrupted",
            reason,
            host=held.get("host"),
            job=held.get("job"),
            at=held.get("at"),
            checkpoint=checkpoint,
        )
    return Seen(run, "missing", checkpoint=checkpoint)


def _wall_s(record: Mapping[str, Any]) -> float | None:
    """Seconds from the start of the process to the record; unknown for a run that ended early or in another life."""
    if record["status"] != "completed" or record.get("resumed"):
        return None
    try:
        return (time_of(record["stopped"]) - time_of(record["started"])).total_seconds() + record["timing"][
            "startup_s"
        ]
    except (KeyError, TypeError):
        return None


def is_alive(held: Mapping[str, Any], note: Mapping[str, Any] | None, queue: Queue, now: datetime) -> bool:
    """Whether the holder of a lease still trains. Only a display: clocks of several hosts are compared here, which the
    trainer never does (see jobs/lease.py).
    """
    # The note is written after the run's end, and deleted before the next start.
    if note is not None and time_of(held["since"]) <= time_of(note.get("at")):
        return False
    me = lease.identity()
    if held["boot"] is not None and all(held[key] == me[key] for key in ("boot", "pid_namespace")):
        alive = lease.is_alive(held["pid"], held["started"])
        if alive is not None:
            return alive
    if queue.is_running(held["job"]):
        return True
    return now - time_of(held["at"]) < timedelta(seconds=_BEATS * held["interval_s"])


def _progress(path: Path, protocol: Protocol) -> str:
    """How far the history's last row is, such as 'epoch 12 of 100'; '' before the first."""
    unit = "epoch" if protocol.by_epochs else "step"
    try:
        header, *rows = path.read_text().splitlines()
        last = int(rows[-1].split(",")[header.split(",").index(unit)])
    except (OSError, ValueError, IndexError):
        return ""
    # Epochs count from 0, and a row is written at the end of one.
    return f"{unit} {last + (unit == 'epoch')} of {protocol.epochs or protocol.steps}"


def time_of(text: Any) -> datetime:
    """A UTC time as a lease, note or record has it; long ago where it has none."""
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return _LONG_AGO
    return time if time.tzinfo else time.replace(tzinfo=UTC)
