"""`ketscale status`: the state of every run of a study, from its folder and SLURM's queue."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ketscale import process
from ketscale.config import Config, Protocol, Settings
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import driver, finished, locks, records, supervise
from ketscale.jobs.costs import Costs, Forecast, below, total
from ketscale.jobs.slurm import queue, site
from ketscale.measure.form import EARLY_ENDS, Record
from ketscale.measure.record import State
from ketscale.words import aligned, counted, duration, rounded

# A run that is done has a record of these settings, with any status; the others have none that can be trusted.
STATES = ("done", "running", "queued", "failed", "interrupted", "stale", "refused", "missing")
TROUBLE = ("failed", "interrupted", "stale", "refused")
# Bytes at the end of a history that have its last two rows.
_TAIL = 4096

# ---------------------------------------------------------------- what each run's folder and the queue say


@dataclass(frozen=True)
class RunState:
    """A run and its state; fields that do not apply to the state are None or empty.

    status: in its record: completed, or why it ended early. at: when a running run started, a failed one ended, or an
    interrupted one had started. launch: equal for the runs that one process trains.
    record: of a run that is done. settings: with what its search has chosen.
    """

    run: Run
    state: str
    reason: str = ""
    status: str | None = None
    host: str | None = None
    job: str | None = None
    at: str | None = None
    progress: str = ""
    launch: str | None = None
    record: Record | None = None
    settings: Settings | None = None


@dataclass(frozen=True)
class Queue:
    """This folder's jobs in SLURM's queue, and the job group of each run.

    jobs: None without SLURM, and if it does not answer. problem: why it does not.
    """

    jobs: tuple[queue.Job, ...] | None = None
    packs: Mapping[Run, str] = field(default_factory=dict)
    problem: str = ""

    def job_of(self, run: Run) -> queue.Job | None:
        """The job of the run's job group; if there are several, a running one."""
        jobs = [j for j in self.jobs or () if j.pack == self.packs.get(run) and j.state != "COMPLETING"]
        return max(jobs, key=lambda job: job.state == "RUNNING", default=None)


def look(config: Config, root: Path) -> tuple[Queue, list[RunState]]:
    """SLURM's queue, and every run of a config below `root` with its state, in scheduling order.

    Raises:
        UserError: the site file exists but is invalid.
    """
    path, jobs = site.path_of(root), Queue()
    of_site = site.load_site(config, path) if path.exists() else None
    if queue.available():
        # Job groups depend on all runs of the config, whatever their state.
        packed = site.packs(config.runs, config.timed, of_site, config.is_trial) if of_site else {}
        try:
            jobs = Queue(tuple(queue.jobs(root)), packed)
        except UserError as error:
            jobs = Queue(problem=str(error))
    return jobs, survey(config, root, jobs)


def survey(config: Config, root: Path, jobs: Queue) -> list[RunState]:
    """Every run of a config with its state, in scheduling order."""
    results, called = root / config.results, locks.holder(root / driver.FOLDER) is not None
    records_of = records.read(config, results)
    return [
        replace(_see(settings, records_of.checked[run], results, jobs, called), settings=settings)
        for run, settings in records_of.settings.items()
    ]


def records_of(config: Config, states: Iterable[RunState], root: Path) -> dict[Path, Record]:
    """The records of runs that are done, by their paths."""
    return {root / config.results / one.run.path: one.record for one in states if one.record is not None}


def _see(settings: Settings, result: State, results: Path, jobs: Queue, called: bool) -> RunState:
    """called: whether a call of Snakemake works in this folder."""
    run, folder, job = settings.run, results / settings.run.folder, jobs.job_of(settings.run)
    if result.record is None and called:
        # Trained with another run; its own job is about to put it in its place.
        saved = finished.right(folder / finished.KEPT, settings, None)
        result = State(saved.status, saved.reason or "", saved) if saved else result
    if result.record is not None:
        quiet = result.record.quiet
        busy = "" if quiet.quiet or not settings.protocol.timed else f"busy: {quiet.why}"
        return RunState(run, "done", result.why or busy, result.state, record=result.record)
    last, holder, note = locks.last(folder), locks.holder(folder), supervise.read_note(folder)
    if holder is not None:
        about = RunState(run, "running", "", None, holder.host, holder.job, holder.since, "", holder.launch)
        if _is_gone(holder, jobs):
            reason = f"the process that has its lock has ended: if nothing trains it, delete {locks.LOCK} in its folder"
            return replace(about, state="interrupted", reason=reason)
        return replace(about, progress=_progress(folder / "checkpoint", settings.protocol))
    # A run that failed in a job is not queued in it, though the job still trains the rest of its job group.
    if job is not None and not (job.state == "RUNNING" and note and note.get("job") == job.id):
        return RunState(run, "queued", f"job {job.id}: {job.state.lower()}, {job.reason}", job=job.id)
    # A record that cannot be used stays where it is until another replaces it.
    if note is not None:
        reason = records.why_missing(folder) or f"its {supervise.NOTE} cannot be read; see train.log"
        return RunState(run, "failed", reason, job=note.get("job"), at=note.get("at"))
    if last is not None and not last.finished:
        how = "was stopped" if last.until else "was killed, or its machine went down"
        reason = f"it {how}; it will resume from its checkpoint, if it has one"
        return RunState(run, "interrupted", reason, host=last.host, job=last.job, at=last.since)
    # No trial of its search can be chosen.
    hopeless = result.state == "missing" and result.why and not (results / run.path).exists()
    return RunState(run, "failed" if hopeless else result.state, result.why)


def _is_gone(holder: locks.Holder, jobs: Queue) -> bool:
    """Whether a lock's holder has ended, as far as that can be known here."""
    # On this host the kernel, or filelock, has given the lock back.
    there = holder.host != process.node_name() and holder.job is not None
    away = there and jobs.jobs is not None and holder.job not in [job.id for job in jobs.jobs]
    return away and queue.job_over(str(holder.job))


def _progress(checkpoints: Path, protocol: Protocol) -> str:
    """The progress in the last whole row of the newest history, such as 'epoch 12 of 100'; '' if there is none."""
    unit = "epoch" if protocol.by_epochs else "step"
    try:
        newest = max(checkpoints.glob("*.csv"), key=lambda path: path.stat().st_mtime)
        with newest.open("rb") as file:
            place = file.readline().decode().rstrip("\n").split(",").index(unit)
            file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - _TAIL))
            # What follows the last line's end is a row that is being written.
            last = int(file.read().split(b"\n")[-2].split(b",")[place])
    except (OSError, ValueError, IndexError):
        return ""
    # Epochs count from 0, and a row is written at the end of each.
    return f"{unit} {last + (unit == 'epoch')} of {protocol.epochs or protocol.steps}"


# ---------------------------------------------------------------- in words


def as_text(config: Config, configfile: Path, root: Path, trouble_only: bool = False) -> str:
    """The state of a config's runs below `root`.

    trouble_only: lists only the runs that failed, were interrupted, or are stale or refused, and what runs each again.

    Raises:
        UserError: the site file exists but is invalid.
    """
    jobs, states = look(config, root)
    troubled = sorted((s for s in states if s.state in TROUBLE), key=lambda s: TROUBLE.index(s.state))
    if trouble_only:
        lines = [line for one in troubled for line in _trouble(one, config, configfile)]
        return "\n".join(lines or ["no run has failed, been interrupted, or become stale or refused"])
    reasons = records.by_reason((one.state, one.reason, one.run.name) for one in troubled)
    reasons += [f"each of them: ketscale status{driver.option(configfile)} --failed"] if troubled else []
    hours = sum(one.record.node_hours for one in states if one.record)
    used = [f"used: {rounded(hours)} node-hours by records"] if hours else []
    left = _left(config, configfile, root, states)
    blocks = [_table(config, states), reasons, [*_queue(jobs), *used, *left], _running(states)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _table(config: Config, states: Sequence[RunState]) -> list[str]:
    """A row for each study. A run that is in several counts in each."""
    runs = {study.name: {*config.runs_of(study)} for study in config.studies}
    rows = {name: Counter(one.state for one in states if one.run in runs[name]) for name in runs}
    rows |= {"all": Counter(one.state for one in states)} if len(rows) > 1 else {}
    columns = [state for state in STATES if state == "done" or any(row[state] for row in rows.values())]
    cells = [
        [name, *(str(number or ".") for number in (row.total(), *(row[state] for state in columns)))]
        for name, row in rows.items()
    ]
    lines = aligned([["", "runs", *columns], *cells], right=range(1, len(columns) + 2))
    ends = Counter(one.status for one in states)
    early = [f"{ends[name]} {name.replace('_', ' ')}" for name in EARLY_ENDS if ends[name]]
    notes = [f"of the done: {', '.join(early)}"] if early else []
    return [*([config.title] if config.title else []), *lines, *notes]


def _running(states: Sequence[RunState]) -> list[str]:
    rows, now = [("running for", "on", "at", "")], datetime.now(UTC)
    for one in (one for one in states if one.state == "running"):
        age_s = max(0.0, (now - datetime.fromisoformat(one.at or "")).total_seconds())
        where = f"{one.host}{f', job {one.job}' if one.job else ''}"
        rows.append((duration(age_s, 2), where, one.progress or "-", one.run.name))
    return aligned(rows) if len(rows) > 1 else []


def _queue(of: Queue) -> list[str]:
    unknown = [f"queue: unknown, so waiting runs are not shown as queued ({of.problem})"] * bool(of.problem)
    jobs = Counter(f"{job.state.lower()} ({job.reason})".replace(" (None)", "") for job in of.jobs or ())
    counts = ", ".join(f"{number} {state}" for state, number in jobs.most_common())
    return [*unknown, *([f"queue: {counts}"] if counts else [])]


def _trouble(one: RunState, config: Config, configfile: Path) -> list[str]:
    path = f"{config.results}/{one.run.path}"
    where = [*filter(None, (one.at, one.host, one.job and f"job {one.job}"))]
    reason = f"{one.state}: {one.reason}" + f" ({', '.join(where)})" * bool(where)
    return [path, f"    {reason}", f"    {driver.command(configfile)} {shlex.quote(path)}"]


def _left(config: Config, configfile: Path, root: Path, states: Sequence[RunState]) -> list[str]:
    """What the runs without a result take, and the command that trains them, unless it is at work."""
    rest = [one for one in states if one.state != "done"]
    if not rest:
        return ["left: nothing"]
    history = Costs(below([root / config.results], records_of(config, states, root)))
    costs: Mapping[Run, Forecast] = history.forecasts(one.settings for one in rest if one.settings)
    hours = total(costs.values())
    running = {one.launch or one.run: one.run.nodes for one in states if one.state == "running"}
    nodes = sum(running.values())
    words = f"{counted(len(rest), 'run')}, whose cost no record predicts"
    if costs:
        words = (
            f"about {hours} for {f'{len(costs)} of ' * (len(costs) < len(rest))}{counted(len(rest), 'run')}"
        )
        if nodes:
            words += f"; {duration(3600 * hours.middle / nodes, 2)} with as many at a time as now"
    at_work = nodes or locks.holder(driver.FOLDER) or any(one.state == "queued" for one in states)
    return [f"left: {words}", *([] if at_work else [f"resume: {driver.command(configfile)}"])]
