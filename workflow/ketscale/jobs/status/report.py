"""The output of `ketscale status`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ketscale.config import Config
from ketscale.grid import Run
from ketscale.jobs import driver, locks, records
from ketscale.jobs.costs import Costs, Forecast, below, total
from ketscale.jobs.driver import command, option
from ketscale.jobs.status.survey import STATES, TROUBLE, Queue, RunState, counts, look, records_of
from ketscale.measure.form import EARLY_ENDS
from ketscale.words import aligned, counted, duration, rounded


@dataclass(frozen=True)
class Report:
    """Everything that `ketscale status` shows. left: the runs without a result; costs: what is known of them."""

    config: Config
    configfile: Path
    states: Sequence[RunState]
    queue: Queue
    rest: Sequence[RunState]
    costs: Mapping[Run, Forecast]


def report(config: Config, configfile: Path, root: Path) -> Report:
    """The state of a config's runs below `root`.

    Raises:
        UserError: the site file exists but is invalid.
    """
    jobs, states = look(config, root)
    rest = [one for one in states if one.state != "done"]
    history = Costs(below([root / config.results], records_of(config, states, root)) if rest else [])
    costs = history.forecasts(one.settings for one in rest if one.settings)
    return Report(config, configfile, states, jobs, rest, costs)


def as_text(of: Report, trouble_only: bool = False) -> str:
    """The report; `trouble_only` lists only the runs that failed, were interrupted, or are stale or refused, and what runs each
    again.
    """
    if trouble_only:
        return "\n".join(_each_trouble(of))
    hours = sum(one.node_hours for one in of.states)
    used = [f"used: {rounded(hours)} node-hours by records"] if hours else []
    blocks = [_table(of), _trouble(of), [*_queue(of.queue), *used, *_remaining(of)], _running(of)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _troubled(states: Iterable[RunState]) -> list[RunState]:
    return sorted((one for one in states if one.state in TROUBLE), key=lambda one: TROUBLE.index(one.state))


def _table(of: Report) -> list[str]:
    """A row for each study. A run that is in several counts in each."""
    runs = {study.name: of.config.runs_of(study) for study in of.config.studies}
    rows = {name: counts(one for one in of.states if one.run in runs[name]) for name in runs}
    rows |= {"all": counts(of.states)} if len(rows) > 1 else {}
    columns = [state for state in STATES if state == "done" or any(row[state] for row in rows.values())]
    cells = [
        [name, *(str(number or ".") for number in (sum(row[s] for s in STATES), *(row[s] for s in columns)))]
        for name, row in rows.items()
    ]
    lines = aligned([["", "runs", *columns], *cells], right=range(1, len(columns) + 2))
    early = [
        f"{row} {name.replace('_', ' ')}"
        for name, row in counts(of.states).items()
        if name in EARLY_ENDS and row
    ]
    notes = [f"of the done: {', '.join(early)}"] if early else []
    return [*([of.config.title] if of.config.title else []), *lines, *notes]


def _running(of: Report) -> list[str]:
    rows, now = [("running for", "on", "at", "")], datetime.now(UTC)
    for one in (one for one in of.states if one.state == "running"):
        age_s = max(0.0, (now - datetime.fromisoformat(one.at or "")).total_seconds())
        where = f"{one.host}{f', job {one.job}' if one.job else ''}"
        rows.append((duration(age_s, 2), where, one.progress or "-", one.run.name))
    return aligned(rows) if len(rows) > 1 else []


def _queue(of: Queue) -> list[str]:
    unknown = [f"queue: unknown, so waiting runs are not shown as queued ({of.problem})"] * bool(of.problem)
    jobs = Counter(f"{job.state.lower()} ({job.reason})".replace(" (None)", "") for job in of.jobs or ())
    counts = ", ".join(f"{number} {state}" for state, number in jobs.most_common())
    return [*unknown, *([f"queue: {counts}"] if counts else [])]


def _trouble(of: Report) -> list[str]:
    """Failed, interrupted, stale and refused runs, grouped by reason."""
    lines = records.by_reason((one.state, one.reason, one.run.name) for one in _troubled(of.states))
    return [*lines, f"each of them: ketscale status{option(of.configfile)} --failed"] if lines else []


def _each_trouble(of: Report) -> list[str]:
    lines = []
    for one in _troubled(of.states):
        path = f"{of.config.results}/{one.run.path}"
        where = [*filter(None, (one.at, one.host, one.job and f"job {one.job}"))]
        reason = f"{one.state}: {one.reason}" + f" ({', '.join(where)})" * bool(where)
        lines += [path, f"    {reason}", f"    {command(of.configfile)} {shlex.quote(path)}"]
    return lines or ["no run has failed, been interrupted, or become stale or refused"]


def _remaining(of: Report) -> list[str]:
    """What the runs without a result take, and the command that trains them, unless it is at work."""
    if not of.rest:
        return ["left: nothing"]
    runs, hours = counted(len(of.rest), "run"), total(of.costs.values())
    nodes = sum(
        {one.launch or one.run: one.run.nodes for one in of.states if one.state == "running"}.values()
    )
    if not of.costs:
        words = f"{runs}, whose cost no record predicts"
    else:
        words = f"about {hours} for {f'{len(of.costs)} of ' * (len(of.costs) < len(of.rest))}{runs}"
        if nodes:
            words += f"; {duration(3600 * hours.middle / nodes, 2)} with as many at a time as now"
    at_work = nodes or locks.holder(driver.FOLDER) or any(one.state == "queued" for one in of.states)
    return [f"left: {words}", *([] if at_work else [f"resume: {command(of.configfile)}"])]
