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
from ketscale.jobs import driver
from ketscale.jobs.costs import Costs, Forecast, below, total
from ketscale.jobs.slurm import site as sites
from ketscale.jobs.status import survey
from ketscale.words import aligned, counted, duration, rounded

# Why runs are left out.
_OVER = "over the budget"
_UNKNOWN = "whose cost no record tells: first train one of each model, simulator and backend"
_INCOMPLETE = "of points that cannot be completed"


@dataclass(frozen=True)
class Plan:
    """What is missing, what is known of its cost, and what to do first.

    command: trains what is missing. told: what records tell. costs: of runs that they tell of.
    budget: node-hours; None for no limit. chosen: the runs to do first. left_out: the others, and why.
    """

    config: Config
    command: str
    told: Costs
    costs: Mapping[Run, Forecast]
    budget: float | None
    chosen: Sequence[Run]
    left_out: Mapping[Run, str]

    def target(self, run: Run) -> str:
        """A run as a target of Snakemake."""
        return f"{self.config.results}/{run.path}"


def make(config: Config, configfile: Path, node_hours: float | None, folders: Sequence[Path]) -> Plan:
    """The plan for what is missing of a config's runs in this folder.

    node_hours: the budget; None for none. folders: results folders whose records tell costs, beside the config's own.

    Raises:
        UserError: the site file exists but is invalid.
    """
    seen = survey.look(config, Path())[1]
    have = {one.run for one in seen if one.state in ("done", "running", "queued")}
    missing = {one.run: one.settings for one in seen if one.run not in have and one.settings}
    told = Costs(below([Path(config.results), *folders], survey.known(config, seen, Path())))
    costs = told.forecasts(missing.values())
    hours = {run: one.node_hours.middle for run, one in costs.items()}
    points = order(config, have, hours)
    chosen = _affordable(points, hours, math.inf if node_hours is None else node_hours)
    over = {run: _OVER for completion, seeds in points for run in (*completion, *seeds)}
    left_out = over | dict.fromkeys(missing, _UNKNOWN) | dict.fromkeys(costs, _INCOMPLETE) | over
    for run in chosen:
        del left_out[run]
    return Plan(config, driver.command(configfile), told, costs, node_hours, chosen, left_out)


def _affordable(
    points: Iterable[tuple[list[Run], list[Run]]], hours: Mapping[Run, float], budget: float
) -> list[Run]:
    """The runs of the points, as `order` gives them, that a budget pays for."""
    chosen, further, left = list[Run](), list[Run](), budget
    for completion, seeds in points:
        if (price := sum(hours[run] for run in completion)) <= left:
            left -= price
            chosen += completion
            further += seeds
    for run in sorted(further, key=hours.__getitem__):
        if hours[run] <= left:
            left -= hours[run]
            chosen.append(run)
    return chosen


def order(config: Config, have: set[Run], hours: dict[Run, float]) -> list[tuple[list[Run], list[Run]]]:
    """For each point the missing runs that complete it, and its further seeds: the cheapest completion first.

    A point is complete with the three seeds that an interval needs, or all that it has, and the trials of its search.
    It is left out if runs of unknown cost are among them. have: runs with a result, or under way. hours: the node-hours of
    the others, as far as they are known.
    """
    points, found = dict[object, list[Run]](), []
    for run in config.runs:
        if not config.is_trial(run):
            points.setdefault(run.without("seed"), []).append(run)
    for seeds in points.values():
        trials = [run for run in config.trials_of(seeds[0]) if run not in have]
        known = sorted((run for run in seeds if run in hours), key=hours.__getitem__)
        needed = max(0, min(FEWEST, len(seeds)) - sum(run in have for run in seeds))
        if needed <= len(known) and hours.keys() >= {*trials}:
            found.append(([*trials, *known[:needed]], known[needed:]))
    return sorted(found, key=lambda point: sum(hours[run] for run in point[0]))


def as_targets(plan: Plan) -> str:
    """The runs to do first, a target of Snakemake in each line.

    Raises:
        UserError: there are none. Snakemake without a target would run the whole study.
    """
    if not plan.chosen:
        raise UserError("nothing is to be done first: without --targets, `ketscale plan` says why")
    return "\n".join(map(plan.target, plan.chosen))


def as_text(plan: Plan) -> str:
    """The plan for people: a table of the points, what comes first and what is left out, and the commands."""
    if not plan.chosen and not plan.left_out:
        return "nothing is missing"
    lines = _table(plan) if plan.costs else []
    if plan.chosen:
        budget = "" if plan.budget is None else f", on a budget of {rounded(plan.budget)}"
        lines.append(f"First: {counted(len(plan.chosen), 'run')}, {_hours(plan, plan.chosen)}{budget}.")
    for why in (_OVER, _INCOMPLETE, _UNKNOWN):
        if runs := [run for run, reason in plan.left_out.items() if reason == why]:
            hours = f", {_hours(plan, runs)}" if why == _OVER else ""
            lines.append(f"Left out: {counted(len(runs), 'run')} {why}{hours}.")
    if plan.chosen:
        only = f" $({shlex.join(['ketscale', *sys.argv[1:]])} --targets)" if plan.left_out else ""
        lines += ["", f"  {plan.command}{only}"]
    return "\n".join(lines)


def _table(plan: Plan) -> list[str]:
    """A row for each point, those to do first on top, with its longest run. Trials share one."""
    points = dict[str, list[Forecast]]()
    for run in (run for run in (*plan.chosen, *plan.left_out) if run in plan.costs):
        trials = plan.config.trials.get(run.protocol)
        named = replace(run, protocol=f"trials of {trials[0]}") if trials else run
        points.setdefault(named.name.rpartition("/")[0], []).append(plan.costs[run])
    rows = [["first", "node-hours", "longest run", "point"]]
    for name, costs in points.items():
        slowest = max(costs, key=lambda one: one.seconds.high)
        number = f"{sum(one.run not in plan.left_out for one in costs)} of {len(costs)}"
        node_hours = rounded(total(costs).middle)
        longest = [duration(seconds, 2) for seconds in (slowest.seconds.middle, slowest.seconds.high)]
        rows.append([number, node_hours, "{} (to {})".format(*longest), name])
    known = f"{counted(plan.told.records, 'record')} ({'; '.join(plan.told.machines)})"
    return [*aligned(rows, right=[0, 1]), "", f"90 % intervals, from {known}", ""]


def _hours(plan: Plan, runs: Iterable[Run]) -> str:
    """The node-hours of some runs, and their GPU-hours if there are any, in words."""
    costs = [plan.costs[run] for run in runs]
    gpu_hours = sum(one.node_hours.middle * sites.gpus_per_node(one.run) for one in costs)
    return str(total(costs)) + f" and {rounded(gpu_hours)} GPU-hours" * (gpu_hours > 0)
