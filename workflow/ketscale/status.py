"""`ketscale status`: where every run of a study stands, by what lies on disk and in SLURM's queue, and what is left.

It only looks: nothing is written and no lease taken. Imports nothing heavy, and checks no record against its schema,
so that thousands of runs are a matter of a second; `ketscale collect` does check.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ketscale import grid
from ketscale.backends.supervise import NOTE
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.records import SCHEMA_VERSION
from ketscale.slurm import queue as slurm
from ketscale.slurm import site as sites
from ketscale.slurm.packs import packs
from ketscale.slurm.queue import Job
from ketscale.slurm.site import Site
from ketscale.training import finished, lease

# done has a record of these settings, whatever its status; the others have none to trust.
STATES = ("done", "running", "queued", "failed", "interrupted", "stale", "missing")
TROUBLE = ("failed", "interrupted", "stale")
_WIDTH = 118
_NAME_WIDTH = 62
_GROUPS = 30
_RUNNING = 20
_REASONS = 15
# A lease that was renewed within so many of its beats counts as held.
_BEATS = 5
_AGAIN = "; delete it and run it again"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
# Runs that differ in no more than their seed, or their place too, are expected to take equally long.
_SIBLINGS = ("workload", "model", "qubits", "layers", "batch", "simulator", "protocol")
_PLACE = ("backend", "nodes", "ranks", "threads")


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


@dataclass(frozen=True)
class Queue:
    """This folder's jobs in SLURM's queue, and the pack of each run; `problem` says why they are unknown."""

    jobs: tuple[Job, ...] = ()
    packs: Mapping[Run, str] = field(default_factory=dict)
    problem: str = ""
    available: bool = False

    def job_of(self, run: Run) -> Job | None:
        """The job that holds the run's pack: the one that runs, if several do."""
        found = [j for j in self.jobs if j.pack == self.packs.get(run) and j.state in ("RUNNING", "PENDING")]
        return max(found, key=lambda job: job.state == "RUNNING", default=None)

    def is_running(self, job: str | None) -> bool:
        """Whether the job of this id runs."""
        return any(job == other.id and other.state == "RUNNING" for other in self.jobs)


@dataclass(frozen=True)
class Estimate:
    """What is left: the wall times of runs without a result, by those of finished runs or by their time limits."""

    runs: int
    by_siblings: int
    by_limits: int
    wall_s: float
    node_hours: float
    at_once: int

    @property
    def unknown(self) -> int:
        """Runs of which nothing says how long they take; they count as nothing."""
        return self.runs - self.by_siblings - self.by_limits


@dataclass(frozen=True)
class Report:
    """All that `ketscale status` says."""

    title: str
    command: str  # that trains what is left
    seen: tuple[Seen, ...]
    queue: Queue
    estimate: Estimate
    now: datetime


def look(config: Mapping[str, Any], configfile: Path, root: Path) -> Report:
    """Where the runs of a checked config stand below `root`.

    Raises:
        UserError: the site file is there and broken.
    """
    now = datetime.now(UTC)
    path = root / sites.PATH
    site = sites.load(path) if path.exists() else None
    queue = ask(config, root, site)
    seen = tuple(survey(config, root, queue, now))
    return Report(config.get("title", ""), command(configfile), seen, queue, estimate(seen, site, now), now)


def command(configfile: Path) -> str:
    """The call of Snakemake that trains what is left; paths of runs may follow it."""
    profile = "slurm" if slurm.available() else "profiles/local"
    # --configfile takes several files: in front, so that it takes no run for one.
    other = f" --configfile {shlex.quote(str(configfile))}" if configfile != Path("config.yaml") else ""
    return f"snakemake{other} --profile {profile}"


def ask(config: Mapping[str, Any], root: Path, site: Site | None) -> Queue:
    """The queue of this folder; one that does not answer is a line of the report, and no error."""
    if not slurm.available():
        return Queue()
    try:
        jobs = tuple(slurm.jobs(root))
    except UserError as error:
        return Queue(problem=str(error), available=True)
    # Packs depend on all runs of the config, whatever has become of them.
    named = (
        packs(grid.runs(config), lambda run: config["protocols"][run.protocol]["timed"], site) if site else {}
    )
    return Queue(jobs, named, available=True)


def survey(config: Mapping[str, Any], root: Path, queue: Queue, now: datetime) -> list[Seen]:
    """Every run of a checked config with its state, in scheduling order."""
    runs = grid.runs(config)
    features = {
        name: finished.features_hash(root / "results/features" / name / "features.json")
        for name in {run.workload for run in runs}
    }
    return [_see(run, config, features[run.workload], root, queue, now) for run in runs]


def _see(
    run: Run, config: Mapping[str, Any], features: str | None, root: Path, queue: Queue, now: datetime
) -> Seen:
    folder = root / run.folder
    try:
        names = set(os.listdir(folder))
    except OSError:
        names = set()
    record, fault = None, ""
    if grid.RECORD in names:
        record, fault = _read(folder / grid.RECORD, grid.resolve(config, run), features)
    if record is not None:
        status, reason = record["status"], record.get("reason") or ""
        return Seen(run, "done", reason, status=status, wall_s=_wall_s(record))
    note = _note(folder / NOTE) if NOTE in names else None
    held = lease.read(folder) if "lease" in names else None
    checkpoint = "checkpoint" in names and any((folder / "checkpoint").glob("*.pt"))
    if held and not held["released"] and is_alive(held, note, queue, now):
        progress = _progress(folder / "history.csv", grid.resolve(config, run)["protocol"])
        return Seen(
            run,
            "running",
            host=held["host"],
            job=held["job"],
            at=held["since"],
            progress=progress,
            checkpoint=checkpoint,
        )
    job = queue.job_of(run)
    # A run that has failed in the very job that now trains the rest of its pack is not tried again by it.
    if job is not None and not (job.state == "RUNNING" and note and note.get("job") == job.id):
        waits = (
            f"waits in its pack, job {job.id} runs" if job.state == "RUNNING" else f"pending: {job.reason}"
        )
        return Seen(run, "queued", waits, job=job.id, checkpoint=checkpoint)
    if fault:
        return Seen(run, "stale", fault, checkpoint=checkpoint)
    if note is not None:
        reason = str(note.get("reason") or f"its {NOTE} cannot be read; see train.log")
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


def _read(
    path: Path, settings: Mapping[str, Any], features: str | None
) -> tuple[Mapping[str, Any] | None, str]:
    """The record, or why it is stale. Features that are computed inline leave no hash in it."""
    try:
        record = json.loads(path.read_bytes())
        if record["schema"] != SCHEMA_VERSION:
            return (
                None,
                f"its record has schema {record['schema']!r}, this version reads {SCHEMA_VERSION}{_AGAIN}",
            )
        if record["config_hash"] != grid.config_hash(settings):
            return None, f"trained under other settings: its config hash is not the config's{_AGAIN}"
        if features is not None and record["features_hash"] not in (features, None):
            return None, f"trained on other features: its features hash is not the manifest's{_AGAIN}"
        return record | {"status": str(record["status"])}, ""
    except (OSError, ValueError, KeyError, TypeError):
        return None, f"its record cannot be read{_AGAIN}"


def _wall_s(record: Mapping[str, Any]) -> float | None:
    """Seconds from the start of the process to the record; unknown for a run that ended early or in another life."""
    if record["status"] != "completed" or record.get("resumed"):
        return None
    try:
        return (_time(record["stopped"]) - _time(record["started"])).total_seconds() + record["timing"][
            "startup_s"
        ]
    except (KeyError, TypeError):
        return None


def _note(path: Path) -> Mapping[str, Any]:
    try:
        note = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def is_alive(held: Mapping[str, Any], note: Mapping[str, Any] | None, queue: Queue, now: datetime) -> bool:
    """Whether the holder of a lease still trains. Only a display: clocks of several hosts are compared here, which the
    trainer never does (see training/lease.py).
    """
    # The note is written after the run's end, and deleted before the next start.
    if note is not None and _time(held["since"]) <= _time(note.get("at")):
        return False
    me = lease.identity()
    if held["boot"] is not None and all(held[key] == me[key] for key in ("boot", "pid_namespace")):
        alive = lease.is_alive(held["pid"], held["started"])
        if alive is not None:
            return alive
    if queue.is_running(held["job"]):
        return True
    return now - _time(held["at"]) < timedelta(seconds=_BEATS * held["interval_s"])


def _progress(path: Path, protocol: Mapping[str, Any]) -> str:
    """How far the history's last row is, such as 'epoch 12 of 100'; '' before the first."""
    unit = "epoch" if "epochs" in protocol else "step"
    try:
        header, *rows = path.read_text().splitlines()
        last = int(rows[-1].split(",")[header.split(",").index(unit)])
    except (OSError, ValueError, IndexError):
        return ""
    # Epochs count from 0, and a row is written at the end of one.
    return f"{unit} {last + (unit == 'epoch')} of {protocol[f'{unit}s']}"


def estimate(seen: Iterable[Seen], site: Site | None, now: datetime) -> Estimate:
    """How long the runs without a result will take; what running ones have had is taken off."""
    seen = list(seen)
    exact, elsewhere = _medians(seen, _SIBLINGS + _PLACE), _medians(seen, _SIBLINGS)
    left = [one for one in seen if one.state != "done"]
    siblings = limits = 0
    wall = node = 0.0
    for one in left:
        expected = exact.get(_key(one.run, _SIBLINGS + _PLACE), elsewhere.get(_key(one.run, _SIBLINGS)))
        if expected is not None:
            siblings += 1
        elif site is not None:
            expected = 60.0 * site.minutes(one.run)
            limits += 1
        else:
            continue
        if one.state == "running":
            expected = max(0.0, expected - _age_s(one, now))
        wall += expected
        node += expected * one.run.nodes / 3600
    return Estimate(len(left), siblings, limits, wall, node, sum(one.state == "running" for one in seen))


def _medians(seen: Iterable[Seen], axes: tuple[str, ...]) -> dict[tuple[Any, ...], float]:
    taken: dict[tuple[Any, ...], list[float]] = {}
    for one in seen:
        if one.wall_s is not None:
            taken.setdefault(_key(one.run, axes), []).append(one.wall_s)
    return {key: statistics.median(seconds) for key, seconds in taken.items()}


def _key(run: Run, axes: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(run, axis) for axis in axes)


def counts(seen: Iterable[Seen]) -> dict[str, int]:
    """How many runs are in each state; diverged and out_of_memory are also among those done."""
    found = Counter(one.state for one in seen)
    ended = Counter(one.status for one in seen if one.status)
    return {state: found[state] for state in STATES} | {
        status: ended[status] for status in ("diverged", "out_of_memory")
    }


def as_json(report: Report, trouble_only: bool = False) -> str:
    """The report for scripts; `trouble_only` leaves out runs that are well."""
    runs = [
        {
            "run": one.run.path,
            "state": one.state,
            "reason": one.reason or None,
            "status": one.status,
            "host": one.host,
            "job": one.job,
            "at": one.at,
            "progress": one.progress or None,
            "checkpoint": one.checkpoint,
        }
        for one in report.seen
        if not trouble_only or one.state in TROUBLE
    ]
    left = report.estimate
    jobs = None
    if report.queue.available and not report.queue.problem:
        jobs = [
            {"id": job.id, "state": job.state, "pack": job.pack, "reason": job.reason}
            for job in report.queue.jobs
        ]
    said = {
        "title": report.title,
        "counts": counts(report.seen),
        "runs": runs,
        "jobs": jobs,
        "estimate": {
            "runs": left.runs,
            "by_siblings": left.by_siblings,
            "by_limits": left.by_limits,
            "unknown": left.unknown,
            "node_hours": left.node_hours,
            "wall_s": left.wall_s,
        },
    }
    return json.dumps(said, indent=1)


def as_text(report: Report, trouble_only: bool = False) -> str:
    """The report for people; `trouble_only` lists every run that is not well, with what runs it again."""
    if trouble_only:
        return "\n".join(_each_trouble(report))
    blocks = [_head(report), _table(report.seen), _running(report), _trouble(report), _left(report)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _head(report: Report) -> list[str]:
    number = counts(report.seen)
    ended = [
        f"{number[status]} {status.replace('_', ' ')}"
        for status in ("diverged", "out_of_memory")
        if number[status]
    ]
    words = [f"{number[state]} {state}" for state in STATES if number[state] or state == "done"]
    if ended:
        words[0] += f" ({', '.join(ended)})"
    lines = [report.title] if report.title else []
    return [*lines, f"{_plural(len(report.seen), 'run')}: {', '.join(words)}", *_queue_line(report.queue)]


def _queue_line(queue: Queue) -> list[str]:
    if not queue.available:
        return []
    if queue.problem:
        return [f"queue: unknown, so that runs that wait in it are not shown as queued ({queue.problem})"]
    states = Counter(job.state.lower() for job in queue.jobs)
    why = Counter(job.reason for job in queue.jobs if job.state == "PENDING")
    words = [f"{count} {state}" for state, count in sorted(states.items(), reverse=True)]
    reasons = f" ({', '.join(f'{reason} {count}' for reason, count in why.most_common(4))})" if why else ""
    others = sum(job.pack not in set(queue.packs.values()) for job in queue.jobs)
    rest = f"; {others} not of this config's runs" if others else ""
    return [f"queue: {', '.join(words)}{reasons}{rest}" if words else "queue: no jobs of this folder"]


def _table(seen: Iterable[Seen]) -> list[str]:
    """Counts by what was trained where, finished groups left out first where there are many."""
    groups: dict[str, list[Seen]] = {}
    for one in seen:
        run = one.run
        name = f"{run.workload}/{run.model} q{run.qubits} {run.place} {run.protocol}"
        groups.setdefault(name, []).append(one)
    numbers = {name: counts(group) | {"runs": len(group)} for name, group in groups.items()}
    shown = list(numbers)
    if len(shown) > _GROUPS:
        # A stable sort: in the grid's order otherwise.
        urgent = sorted(shown, key=lambda name: _urgency(numbers[name]))[:_GROUPS]
        shown = [name for name in shown if name in set(urgent)]
    columns = ["runs", *(s for s in STATES if s == "done" or any(row[s] for row in numbers.values()))]
    width = min(_NAME_WIDTH, max(map(len, shown), default=0))
    lines = [" ".join([f"{'':{width}}", *(f"{column:>{max(5, len(column))}}" for column in columns)])]
    for name in shown:
        cells = [f"{numbers[name][c] or '.':>{max(5, len(c))}}" for c in columns]
        lines.append(" ".join([f"{_shortened(name, width):{width}}", *cells]))
    hidden = [name for name in numbers if name not in set(shown)]
    if hidden:
        over = sum(numbers[name]["done"] == numbers[name]["runs"] for name in hidden)
        lines.append(f"... and {len(hidden)} more" + (f", {over} of them all done" if over else ""))
    return lines


def _urgency(number: Mapping[str, int]) -> int:
    if number["running"] or any(number[state] for state in TROUBLE):
        return 0
    return 2 if number["done"] == number["runs"] else 1


def _running(report: Report) -> list[str]:
    running = [one for one in report.seen if one.state == "running"]
    if not running:
        return []
    rows = [
        (_duration(_age_s(one, report.now)), _where(one), one.progress or "-", _name(one.run))
        for one in running[:_RUNNING]
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  " + "  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    return [
        "running (for how long, where, how far):",
        *lines,
        *([f"  ... and {len(running) - _RUNNING} more"] if len(running) > _RUNNING else []),
    ]


def _trouble(report: Report) -> list[str]:
    """Failed, interrupted and stale runs, those of one reason together."""
    alike: dict[tuple[str, str], list[Seen]] = {}
    for state in TROUBLE:
        for one in report.seen:
            if one.state == state:
                alike.setdefault((state, one.reason), []).append(one)
    lines = []
    for (state, reason), runs in list(alike.items())[:_REASONS]:
        lines += textwrap.wrap(f"{len(runs)} {state}: {reason}", _WIDTH, subsequent_indent="    ")
        lines.append(f"    {'such as ' if len(runs) > 1 else ''}{_name(runs[0].run)}{_when(runs[0])}")
    if len(alike) > _REASONS:
        lines.append(f"... and {len(alike) - _REASONS} more reasons")
    return [*lines, "all of them, with what runs each again: ketscale status --failed"] if lines else []


def _each_trouble(report: Report) -> list[str]:
    lines = []
    for one in (one for state in TROUBLE for one in report.seen if one.state == state):
        path = shlex.quote(one.run.path)
        # Snakemake alone would keep a record whose settings it has no note of.
        delete = f"rm {path} && " if one.state == "stale" else ""
        lines += [
            one.run.path,
            f"    {one.state}: {one.reason}{_when(one)}",
            f"    {delete}{report.command} {path}",
        ]
    return lines or ["no run has failed, been interrupted or become stale"]


def _left(report: Report) -> list[str]:
    left = report.estimate
    if not left.runs:
        return ["left: nothing"]
    known = left.by_siblings + left.by_limits
    ways = [
        f"{number} {way}"
        for number, way in (
            (left.by_siblings, "estimated from finished siblings"),
            (left.by_limits, "by their time limits"),
            (left.unknown, "unknown"),
        )
        if number
    ]
    if not known:
        return [
            f"left: {_plural(left.runs, 'run')}, and no finished one says how long they take",
            report.command,
        ]
    rough = "about" if left.by_siblings else "at most"
    lines = [
        f"left: {rough} {_rounded(left.node_hours)} node-hours for {_plural(left.runs, 'run')} ({', '.join(ways)})"
    ]
    if left.at_once:
        those = f"the {left.at_once} runs that are" if left.at_once > 1 else "the one run that is"
        lines.append(f"      {rough} {_duration(left.wall_s / left.at_once)} at {those} running now")
    return lines


def _name(run: Run) -> str:
    return run.folder.removeprefix(f"{grid.RUNS}/")


def _where(one: Seen) -> str:
    return f"{one.host}{f', job {one.job}' if one.job else ''}"


def _when(one: Seen) -> str:
    """The date to the minute, and the job."""
    words = [one.at[:16].replace("T", " ") + " UTC"] if one.at else []
    words += [one.host] if one.host else []
    words += [f"job {one.job}"] if one.job else []
    return f" ({', '.join(words)})" if words else ""


def _age_s(one: Seen, now: datetime) -> float:
    return max(0.0, (now - _time(one.at)).total_seconds())


def _time(text: Any) -> datetime:
    """A UTC time as a lease, note or record has it; long ago where it has none."""
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return _LONG_AGO
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _duration(seconds: float) -> str:
    for unit, length, least in (("days", 86400, 172800), ("h", 3600, 7200), ("min", 60, 120)):
        if seconds >= least:
            return f"{_rounded(seconds / length)} {unit}"
    return f"{_rounded(seconds)} s"


def _rounded(value: float) -> str:
    """Two digits that count: an estimate has no more."""
    return f"{float(f'{value:.2g}'):g}"


def _plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _shortened(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 3]}..."
