"""`ketscale plan`: what the missing runs of a study will cost, and which to do first on a budget."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ketscale.analysis.intervals import FEWEST
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import driver, status
from ketscale.jobs.costs import Costs, Forecast, below, total
from ketscale.jobs.slurm import site as sites
from ketscale.words import aligned, counted, duration, rounded

# Why runs are omitted.
_OVER = "over the budget"
_UNKNOWN = "without records to predict the cost from: first train one of each model, simulator and backend"
_INCOMPLETE = "of points that cannot be completed"


@dataclass(frozen=True)
class Plan:
    """What is missing, what is known of its cost, and what to do first.

    command: trains what is missing. history: costs by records. costs: of runs that these cover.
    budget: node-hours; None for no limit. first: the runs to do first. omitted: the others, and why.
    """

    config: Config
    command: str
    history: Costs
    costs: Mapping[Run, Forecast]
    budget: float | None
    first: Sequence[Run]
    omitted: Mapping[Run, str]

    def target(self, run: Run) -> str:
        """A run as a target of Snakemake."""
        return f"{self.config.results}/{run.path}"


def make(config: Config, configfile: Path, node_hours: float | None, folders: Sequence[Path]) -> Plan:
    """The plan for what is missing of a config's runs in this folder.

    node_hours: the budget; None for none. folders: results folders whose records predict costs too.

    Raises:
        UserError: the site file exists but is invalid.
    """
    states = status.look(config, Path())[1]
    have = {one.run for one in states if one.state in ("done", "running", "queued")}
    missing = {one.run: one.settings for one in states if one.run not in have and one.settings}
    history = Costs(below([Path(config.results), *folders], status.records_of(config, states, Path())))
    costs = history.forecasts(missing.values())
    hours = {run: one.node_hours.middle for run, one in costs.items()}
    points = order(config, have, hours)
    affordable = _affordable(points, hours, math.inf if node_hours is None else node_hours)
    over = {run: _OVER for completion, seeds in points for run in (*completion, *seeds)}
    omitted = over | dict.fromkeys(missing, _UNKNOWN) | dict.fromkeys(costs, _INCOMPLETE) | over
    for run in affordable:
        del omitted[run]
    return Plan(config, driver.command(configfile), history, costs, node_hours, affordable, omitted)


def _affordable(
    points: Iterable[tuple[list[Run], list[Run]]], hours: Mapping[Run, float], budget: float
) -> list[Run]:
    """The runs of the points, as `order` gives them, that fit into a budget."""
    affordable, further, rest = list[Run](), list[Run](), budget
    for completion, seeds in points:
        if (price := sum(hours[run] for run in completion)) <= rest:
            rest -= price
            affordable += completion
            further += seeds
    for run in sorted(further, key=hours.__getitem__):
        if hours[run] <= rest:
            rest -= hours[run]
            affordable.append(run)
    return affordable


def order(config: Config, have: set[Run], hours: dict[Run, float]) -> list[tuple[list[Run], list[Run]]]:
    """For each point the missing runs that complete it, and its further seeds: the cheapest completion first.

    A point is complete with the three seeds that an interval needs, or all that it has, and the trials of its search.
    It is omitted if the cost of one of them is unknown. have: runs with a result or under way. hours: node-hours of
    the others, as far as they are known.
    """
    points, orders = dict[object, list[Run]](), []
    for run in config.runs:
        if not config.is_trial(run):
            points.setdefault(run.without("seed"), []).append(run)
    for seeds in points.values():
        trials = [run for run in config.trials_of(seeds[0]) if run not in have]
        ranked = sorted((run for run in seeds if run in hours), key=hours.__getitem__)
        count = max(0, min(FEWEST, len(seeds)) - sum(run in have for run in seeds))
        if count <= len(ranked) and hours.keys() >= {*trials}:
            orders.append(([*trials, *ranked[:count]], ranked[count:]))
    return sorted(orders, key=lambda point: sum(hours[run] for run in point[0]))


def as_targets(plan: Plan) -> str:
    """The runs to do first, a target of Snakemake in each line.

    Raises:
        UserError: there are none. Snakemake without a target would run the whole study.
    """
    if not plan.first:
        raise UserError("nothing is to be done first: without --targets, `ketscale plan` says why")
    return "\n".join(map(plan.target, plan.first))


def as_text(plan: Plan) -> str:
    """The plan for people: a table of the points, the runs to do first and those omitted, and the commands."""
    if not plan.first and not plan.omitted:
        return "nothing is missing"
    lines = _table(plan) if plan.costs else []
    if plan.first:
        budget = "" if plan.budget is None else f", on a budget of {rounded(plan.budget)}"
        lines.append(f"First: {counted(len(plan.first), 'run')}, {_hours(plan, plan.first)}{budget}.")
    for why in (_OVER, _INCOMPLETE, _UNKNOWN):
        if runs := [run for run, reason in plan.omitted.items() if reason == why]:
            hours = f", {_hours(plan, runs)}" if why == _OVER else ""
            lines.append(f"Left out: {counted(len(runs), 'run')} {why}{hours}.")
    if plan.first:
        only = f" $({shlex.join(['ketscale', *sys.argv[1:]])} --targets)" if plan.omitted else ""
        lines += ["", f"  {plan.command}{only}"]
    return "\n".join(lines)


def _table(plan: Plan) -> list[str]:
    """A row for each point, those to do first on top, with its longest run. Trials share one."""
    points = dict[str, list[Forecast]]()
    for run in (run for run in (*plan.first, *plan.omitted) if run in plan.costs):
        trials = plan.config.trials.get(run.protocol)
        label = replace(run, protocol=f"trials of {trials[0]}") if trials else run
        points.setdefault(label.name.rpartition("/")[0], []).append(plan.costs[run])
    rows = [["first", "node-hours", "longest run", "point"]]
    for name, costs in points.items():
        slowest = max(costs, key=lambda one: one.seconds.high)
        number = f"{sum(one.run not in plan.omitted for one in costs)} of {len(costs)}"
        node_hours = rounded(total(costs).middle)
        longest = [duration(seconds, 2) for seconds in (slowest.seconds.middle, slowest.seconds.high)]
        rows.append([number, node_hours, "{} (to {})".format(*longest), name])
    sources = f"{counted(plan.history.records, 'record')} ({'; '.join(plan.history.machines)})"
    return [*aligned(rows, right=[0, 1]), "", f"90 % intervals, from {sources}", ""]


def _hours(plan: Plan, runs: Iterable[Run]) -> str:
    """The node-hours of some runs, and their GPU-hours if there are any, in words."""
    costs = [plan.costs[run] for run in runs]
    gpu_hours = sum(one.node_hours.middle * sites.gpus_per_node(one.run) for one in costs)
    return str(total(costs)) + f" and {rounded(gpu_hours)} GPU-hours" * (gpu_hours > 0)
