"""The output of `ketscale status`, for people and for scripts."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ketscale.config import Config
from ketscale.grid import Run
from ketscale.jobs import records
from ketscale.jobs.costs import Call, Costs, Forecast, Interval, longest
from ketscale.jobs.driver import command
from ketscale.jobs.slurm import site as sites
from ketscale.jobs.status.progress import ENDS
from ketscale.jobs.status.spent import Spent, spent
from ketscale.jobs.status.survey import STATES, TROUBLE, Queue, Seen, ask, counts, survey
from ketscale.measure.form import Record
from ketscale.words import aligned, counted, duration, rounded

_NAME_WIDTH = 62
_GROUPS = 30
_RUNNING = 20


@dataclass(frozen=True)
class Remainder:
    """What is left: the wall times of runs without a result, as far as anything is known of them.

    runs: without a result. known: those that have a forecast; the others count as zero. at_most: those of the known that
    may stop early, and nothing is known of when. longest: what the longest of them takes, in words.
    """

    runs: int
    known: int
    at_most: int
    wall_s: Interval
    node_hours: Interval
    at_once: int
    longest: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that `ketscale status` shows. trials: as in the config."""

    title: str
    results: str
    command: str  # trains what is left
    options: str  # by which a command of `ketscale` is about this config
    seen: tuple[Seen, ...]
    queue: Queue
    spent: Spent
    left: Remainder
    now: datetime
    trials: Mapping[str, tuple[str, int]]


def look(config: Config, configfile: Path, root: Path) -> Report:
    """The state of a config's runs below `root`.

    Raises:
        UserError: the site file exists but is invalid.
    """
    queue, seen, now = states(config, root)
    left = [one.run for one in seen if one.state != "done"]
    forecasts: dict[Run, Forecast] = {}
    if left:
        told = Costs.of(root / config.results, known=known(config, seen, root))
        forecasts = Call(told, config, left, root).forecasts()
    return Report(
        config.title,
        config.results,
        command(configfile),
        of_config(configfile),
        seen,
        queue,
        spent(seen, root),
        replace(remainder(seen, forecasts, now), longest=longest(config, forecasts.values())),
        now,
        config.trials,
    )


def known(config: Config, seen: Iterable[Seen], root: Path) -> dict[Path, Record]:
    """The records of runs that are done, by their paths."""
    return {root / config.results / one.run.path: one.record for one in seen if one.record is not None}


def remainder(seen: Iterable[Seen], forecasts: Mapping[Run, Forecast], now: datetime) -> Remainder:
    """How long the runs without a result will take; for running ones, the time since they began or were last saved is
    subtracted.
    """
    seen = list(seen)
    left = [one for one in seen if one.state != "done"]
    wall = node = Interval(0.0, 0.0, 0.0)
    for one in left:
        if one.run in forecasts:
            expected = forecasts[one.run].wall_s
            if one.state == "running":
                saved_s = now.timestamp() - (one.saved or 0.0)
                expected = expected.less(min(one.age_s(now), max(0.0, saved_s)))
            wall += expected
            node += expected.times(one.run.nodes / 3600 / forecasts[one.run].members)
    known = [forecasts[one.run] for one in left if one.run in forecasts]
    return Remainder(
        len(left),
        len(known),
        sum(one.at_most for one in known),
        wall,
        node,
        sum(one.state == "running" for one in seen),
    )


def states(config: Config, root: Path) -> tuple[Queue, tuple[Seen, ...], datetime]:
    """SLURM's queue, the state of every run of a config below `root`, and when that was.

    Raises:
        UserError: the site file exists but is invalid.
    """
    now = datetime.now(UTC)
    path = sites.path_of(root)
    site = sites.load_site(config.sizes, config.size_names, path) if path.exists() else None
    queue = ask(config, root, site)
    return queue, tuple(survey(config, root, queue, now)), now


def of_config(configfile: Path) -> str:
    """The option by which a command of `ketscale` is about a config, as it is typed behind it."""
    return "" if configfile == Path("config.yaml") else f" --config {shlex.quote(str(configfile))}"


def as_json(report: Report, trouble_only: bool = False) -> str:
    """The report for scripts; `trouble_only` keeps only runs that failed, were interrupted, or are stale or refused."""
    keys = ("state", "reason", "status", "host", "job", "at", "progress", "node_hours")
    runs = [
        {
            "run": f"{report.results}/{one.run.path}",
            **{key: getattr(one, key) or None for key in keys},
            "checkpoint": one.saved is not None,
        }
        for one in report.seen
        if not trouble_only or one.state in TROUBLE
    ]
    jobs = None
    if report.queue.available and not report.queue.problem:
        jobs = [asdict(job) for job in report.queue.jobs]
    said = {
        "title": report.title,
        "counts": counts(report.seen),
        "runs": runs,
        "jobs": jobs,
        "spent": {**asdict(report.spent), "left": report.spent.left},
        "refusals": report.queue.refusals,
        "estimate": {name: value for name, value in asdict(report.left).items() if name != "at_once"},
    }
    return json.dumps(said, indent=1)


def as_text(report: Report, trouble_only: bool = False) -> str:
    """The report for people; `trouble_only` lists only runs that failed, were interrupted, or are stale or refused, each
    with the command that runs it again.
    """
    if trouble_only:
        return "\n".join(_each_trouble(report))
    waiting = _reasons(report, ("waiting",))
    hours = [
        *([report.spent.words] if report.spent.node_hours or report.spent.budget else []),
        *_left(report),
    ]
    blocks = [_head(report), _table(report), _running(report), waiting, _trouble(report), hours]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _head(report: Report) -> list[str]:
    number = counts(report.seen)
    ended = [f"{number[status]} {words}" for status, words in ENDS.items() if number[status]]
    words = [f"{number[state]} {state}" for state in STATES if number[state] or state == "done"]
    if ended:
        words[0] += f" ({', '.join(ended)})"
    lines = [report.title] if report.title else []
    return [*lines, f"{counted(len(report.seen), 'run')}: {', '.join(words)}", *_queue_line(report.queue)]


# Such as JobHeldUser, JobHoldMaxRequeue, and "launch failed requeued held": Snakemake would wait for them for ever.
_HELD = re.compile(r"JobH[eo]ld|\bheld\b")


def _queue_line(queue: Queue) -> list[str]:
    if not queue.available:
        return []
    if queue.problem:
        return [f"queue: unknown, so waiting runs are not shown as queued ({queue.problem})", *queue.refusals]
    states = Counter(job.state.lower() for job in queue.jobs)
    why = Counter(job.reason for job in queue.jobs if job.state == "PENDING")
    words = [f"{count} {state}" for state, count in sorted(states.items(), reverse=True)]
    reasons = f" ({', '.join(f'{reason} {count}' for reason, count in why.most_common(4))})" if why else ""
    others = sum(job.pack not in set(queue.packs.values()) for job in queue.jobs)
    rest = f"; {others} not of this config's runs" if others else ""
    said = f"queue: {', '.join(words)}{reasons}{rest}" if words else "queue: no jobs of this folder"
    held = " ".join(job.id for job in queue.jobs if job.state == "PENDING" and _HELD.search(job.reason))
    advice = [f"held jobs start when you, or who holds them, types: scontrol release {held}"] if held else []
    return [said, *advice, *queue.refusals]


def _table(report: Report) -> list[str]:
    """Counts by workload, model, size, layout and protocol. If there are many, finished groups are left out first."""
    groups: dict[str, list[Seen]] = {}
    for one in report.seen:
        run = one.run
        protocol = (
            f"trials of {report.trials[run.protocol][0]}" if run.protocol in report.trials else run.protocol
        )
        name = f"{run.workload}/{run.model} {run.size} {run.layout} {protocol}"
        groups.setdefault(name, []).append(one)
    numbers = {name: counts(group) | {"runs": len(group)} for name, group in groups.items()}
    shown = list(numbers)
    if len(shown) > _GROUPS:
        # The sort is stable, so ties stay in the order of the grid.
        urgent = sorted(shown, key=lambda name: _urgency(numbers[name]))[:_GROUPS]
        shown = [name for name in shown if name in set(urgent)]
    columns = ["runs", *(s for s in STATES if s == "done" or any(row[s] for row in numbers.values()))]
    rows = [[_shortened(name), *(str(numbers[name][column] or ".") for column in columns)] for name in shown]
    lines = aligned([["", *columns], *rows], right=range(1, len(columns) + 1))
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
        (duration(one.age_s(report.now), 2), _where(one), one.progress or "-", one.run.name)
        for one in running[:_RUNNING]
    ]
    rest = [f"  ... and {len(running) - _RUNNING} more"] if len(running) > _RUNNING else []
    return ["running (for how long, where, how far):", *(f"  {line}" for line in aligned(rows)), *rest]


def _trouble(report: Report) -> list[str]:
    """Failed, interrupted, stale and refused runs, grouped by reason."""
    lines = _reasons(report, TROUBLE)
    if lines:
        lines.append(
            f"all of them, each with the command that runs it again: ketscale status{report.options} --failed"
        )
    return lines


def _reasons(report: Report, states: Iterable[str]) -> list[str]:
    runs = (one for state in states for one in report.seen if one.state == state)
    return records.by_reason((one.state, one.reason, f"{one.run.name}{_when(one)}") for one in runs)


def _each_trouble(report: Report) -> list[str]:
    lines = []
    for one in (one for state in TROUBLE for one in report.seen if one.state == state):
        path = shlex.quote(f"{report.results}/{one.run.path}")
        # Otherwise Snakemake would keep the record if it has no note of its settings.
        delete = f"rm {path} && " if one.state in ("stale", "refused") else ""
        lines += [
            f"{report.results}/{one.run.path}",
            f"    {one.state}: {one.reason}{_when(one)}",
            f"    {delete}{report.command} {path}",
        ]
    return lines or ["no run has failed, been interrupted, or become stale or refused"]


def _left(report: Report) -> list[str]:
    left = report.left
    if not left.runs:
        return ["left: nothing"]
    if not left.known:
        return [
            f"left: {counted(left.runs, 'run')}; no record tells what they take, so their time is unknown",
            report.command,
        ]
    hours, unknown = left.node_hours, left.runs - left.known
    known = f"{left.known} of {counted(left.runs, 'run')}" if unknown else counted(left.runs, "run")
    lines = [
        f"left: about {rounded(hours.middle)} node-hours ({rounded(hours.low)} to {rounded(hours.high)}) for {known}"
    ]
    if unknown:
        lines.append(f"      unknown: {counted(unknown, 'run')} of models or simulators without a record")
    if left.at_most:
        lines.append(f"      at most, for {counted(left.at_most, 'run')} that may stop early")
    if left.at_once:
        those = f"the {left.at_once} runs that are" if left.at_once > 1 else "the one run that is"
        lines.append(f"      about {duration(left.wall_s.middle / left.at_once, 2)} at {those} running now")
    return [
        *lines,
        f"      the longest: {left.longest}",
        f"ketscale plan{report.options} says which to do first",
    ]


def _where(one: Seen) -> str:
    return f"{one.host}{f', job {one.job}' if one.job else ''}"


def _when(one: Seen) -> str:
    """The time to the minute, the host and the job."""
    words = [one.at[:16].replace("T", " ") + " UTC"] if one.at else []
    words += [one.host] if one.host else []
    words += [f"job {one.job}"] if one.job else []
    return f" ({', '.join(words)})" if words else ""


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."
