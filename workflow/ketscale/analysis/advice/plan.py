"""`ketscale plan`: what the missing runs of a study will cost, and which to do first on a budget."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ketscale.analysis.advice import priority
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs.costs import Call, Costs, Forecast, Interval, total
from ketscale.jobs.costs import records as samples
from ketscale.jobs.slurm import site as sites
from ketscale.jobs.status import report
from ketscale.jobs.status.spent import Spent, spent
from ketscale.words import aligned, counted, rounded

# Runs that are not to be started: they have a result, or are on their way to one.
_COMING = ("done", "running", "waiting", "queued")
_ROWS, _NAMED = 10, 12
_LIMITED = ("workload", "model", "simulator", "backend", "protocol", "batch")
# On top of the upper ends of the intervals, of which 5 % are exceeded. A retry asks for more, but starts again later.
_MORE_TIME, _MORE_MEMORY = 1.5, 1.25
_MEGABYTES = 100
_COSTS = ("wall_s", "start_s", "step_s", "memory_bytes")
_PLACES = {"repeat": "", "within": "between records", "beyond": "beyond the records"}
# Why runs are left out.
_UNKNOWN, _FITTED = "no record tells its cost", "fitted or probed: no steps tell its time"
_OVER, _INCOMPLETE = "over the budget", "its point has seeds of unknown cost"


@dataclass(frozen=True)
class Cost:
    """A missing run of which something is known. jobs: over which it is split; all but the first resume it."""

    forecast: Forecast
    jobs: int

    @property
    def start_hours(self) -> Interval:
        """The node-hours that its processes take to start, its share of them where it is trained with others."""
        one = self.forecast
        return one.start_s.times(self.jobs * one.run.nodes / one.members / 3600)

    @property
    def node_hours(self) -> Interval:
        """Time on all of its nodes, in all of its jobs."""
        return self.forecast.node_hours + self.start_hours.times((self.jobs - 1) / self.jobs)


@dataclass(frozen=True)
class Plan:
    """What is missing, what is known of its cost, and what to do first.

    options: of this call, to repeat it. missing: runs to be started. costs: of those of which something is known. probes:
    some of the others that would tell. spent: so far. budget, wall_s: node-hours, and the seconds of a job; None for no
    limit. chosen: the runs to do first: on a budget those that it pays for, else all that are known. left_out: the others,
    and why.
    """

    config: Config
    command: str
    options: str
    records: int
    machines: tuple[str, ...]
    missing: tuple[Run, ...]
    costs: Mapping[Run, Cost]
    probes: tuple[Run, ...]
    spent: Spent
    budget: float | None
    wall_s: float | None
    chosen: tuple[Run, ...]
    left_out: Mapping[Run, str]

    def target(self, run: Run) -> str:
        """A run as a target of Snakemake."""
        return f"{self.config.results}/{run.path}"

    def hours(self, runs: Iterable[Run]) -> Interval:
        """The node-hours of some runs of known cost, as an interval for the case that all err to the same side."""
        return total(self.costs[run].node_hours for run in runs)


def make(
    config: Config,
    configfile: Path,
    root: Path,
    node_hours: float | None = None,
    wall_s: float | None = None,
    folders: Sequence[Path] = (),
) -> Plan:
    """The plan for what is missing of a config's runs below `root`.

    Args:
        node_hours: the budget; None for what is left of that of the site file, if it has one.
        wall_s: how long a job may take; None for no limit.
        folders: results folders whose records tell costs, beside the config's own.

    Raises:
        UserError: the site file exists but is invalid, or has a budget of which sacct does not say what is used.
    """
    seen = report.states(config, root)[1]
    so_far = spent(seen, root)
    if node_hours is None and so_far.budget is not None and so_far.left is None:
        raise UserError(
            f"{so_far.problem}, so nothing tells what is left of node_hours in {sites.path_of(root)}: give --node-hours"
        )
    budget = so_far.left if node_hours is None else node_hours
    coming = {one.run for one in seen if one.state in _COMING}
    missing = tuple(one.run for one in seen if one.run not in coming)
    known = report.known(config, seen, root)
    told = Costs.of(root / config.results, *folders, known=known) if missing else Costs([])
    call = Call(told, config, missing, root)

    def costs(runs: Collection[Run] | None = None) -> tuple[dict[Run, Cost], dict[Run, str]]:
        """What runs cost if the call trains only these (None: all), and why others are left out."""
        found, long = dict[Run, Cost](), dict[Run, str]()
        for run, one in call.forecasts(runs).items():
            jobs = 1 if wall_s is None else _jobs(one, wall_s)
            if jobs == 1 or (jobs and not (anew := _anew(config, run))):
                found[run] = Cost(one, jobs)
            else:
                no_more = f"longer than a job, and {anew} has no checkpoints" if jobs else ""
                long[run] = no_more or "starts longer than a job"
        return found, long

    hours_of: dict[object, float] = {}

    def together(runs: Sequence[Run]) -> float:
        """The node-hours of runs that one process trains."""
        alike = frozenset(Counter(map(call.alike, runs)).items())
        if alike not in hours_of:
            found = costs(runs)[0]
            hours = sum(one.node_hours.middle for one in found.values())
            hours_of[alike] = hours if len(found) == len(runs) else math.inf
        return hours_of[alike]

    known_costs, left_out = costs()
    for run in missing:
        if run not in known_costs and run not in left_out:
            left_out[run] = _UNKNOWN if config.protocols[run.protocol].stepped else _FITTED
    chosen = [run for run in missing if run in known_costs]
    if budget is not None:
        hours = {run: one.node_hours.middle for run, one in known_costs.items()}
        ordered = priority.steps(config, coming, hours)
        chosen = priority.choose(ordered, call.cohort, together, budget)
        known_costs |= costs(chosen)[0]
        paid, next_ones = {*chosen}, {run: _OVER for step in ordered for run in (*step.trials, *step.seeds)}
        others = {**next_ones, **{run: _INCOMPLETE for run in known_costs if run not in next_ones}}
        left_out = {run: why for run, why in others.items() if run not in paid} | left_out
    return Plan(
        config,
        report.command(configfile),
        _options(configfile, node_hours, wall_s, folders),
        told.records,
        told.machines,
        missing,
        known_costs,
        _probes(config, [run for run, why in left_out.items() if why == _UNKNOWN]),
        so_far,
        budget,
        wall_s,
        tuple(chosen),
        left_out,
    )


def _anew(config: Config, run: Run) -> str:
    """What starts from the beginning in each of its jobs, in words; '' for a run that has checkpoints."""
    protocol = config.settings(run).protocol
    return "a timed run" if protocol.timed else "l-bfgs" if protocol.optimiser == "l-bfgs" else ""


def _jobs(one: Forecast, wall_s: float) -> int:
    """Over how many jobs of a length in seconds a run is split; 0 if a job ends before it has started."""
    start_s = one.start_s.middle
    if one.wall_s.middle <= wall_s:
        return 1
    return 0 if wall_s <= start_s else math.ceil((one.wall_s.middle - start_s) / (wall_s - start_s))


def _options(
    configfile: Path, node_hours: float | None, wall_s: float | None, folders: Sequence[Path]
) -> str:
    budget = "" if node_hours is None else f" --node-hours {node_hours:g}"
    wall = "" if wall_s is None else f" --wall {wall_s / 60:g}min"
    records = "".join(f" --records {shlex.quote(str(folder))}" for folder in folders)
    return f"{report.of_config(configfile)}{budget}{wall}{records}"


def _probes(config: Config, unknown: Iterable[Run]) -> tuple[Run, ...]:
    """A small run of each model, simulator and backend: with their records something is known of all the others.

    Runs that train what a search chose are none: they come after its trials.
    """

    def size(run: Run) -> tuple[int, ...]:
        return (run.seed, run.ranks * run.threads, sum(config.sizes(run).values()), run.batch)

    smallest: dict[object, Run] = {}
    for run in sorted((run for run in unknown if config.protocols[run.protocol].search is None), key=size):
        smallest.setdefault(samples.known(config.settings(run).content), run)
    return tuple(smallest.values())


def as_targets(plan: Plan) -> str:
    """The runs to do first, a target of Snakemake in each line.

    Raises:
        UserError: there are none. Snakemake without a target would run the whole study.
    """
    if not plan.chosen:
        known = "fits the budget: raise --node-hours, or" if plan.costs else "has a forecast:"
        raise UserError(
            f"no missing run {known} measure one of each kind first (`ketscale plan{plan.options}` names them)"
            if plan.missing
            else "nothing is missing, so there is no target"
        )
    return "\n".join(plan.target(run) for run in plan.chosen)


def as_limits(plan: Plan) -> str:
    """Lines for the site file: one for each model's size with a simulator, backend, batch and protocol, whatever the layout.

    Runs beyond the records have none, since an upper end there is no promise. No time is longer than a job of `wall_s`.
    """
    alike: dict[str, list[Forecast]] = {}
    for run, cost in plan.costs.items():
        axes = {axis: getattr(run, axis) for axis in _LIMITED} | plan.config.sizes(run)
        if cost.forecast.place != "beyond":
            named = ", ".join(f"{name}: {value}" for name, value in axes.items())
            alike.setdefault(named, []).append(cost.forecast)
    said = []
    for named, of in alike.items():
        # A run that is lost starts from the beginning.
        whole_s = max((one.wall_s + one.saved_s.times(one.members)).high for one in of)
        longest_s = min(_MORE_TIME * whole_s, plan.wall_s or math.inf)
        minutes = max(1, math.ceil(longest_s / 60))
        memory = _MORE_MEMORY * max(one.memory_bytes.high for one in of) / 1e6
        megabytes = _MEGABYTES * math.ceil(memory / _MEGABYTES)
        said.append(f"  - {{{named}, minutes: {minutes}, memory_mb: {megabytes}}}")
    if beyond := len(plan.costs) - sum(map(len, alike.values())):
        runs = counted(beyond, "run")
        said.append(f"# {runs} beyond the records: give their limits by hand, or measure smaller ones first")
    none = "# no missing run has a forecast: measure first" if plan.missing else "# nothing is missing"
    return "\n".join(said or [none])


def as_json(plan: Plan) -> str:
    """The plan for scripts."""
    runs, chosen = [], set(plan.chosen)
    for run in plan.missing:
        cost, known_costs = plan.costs.get(run), dict[str, object]()
        if cost:
            one = cost.forecast
            known_costs = {name: asdict(getattr(one, name)) for name in _COSTS}
            known_costs |= {"node_hours": asdict(cost.node_hours), "jobs": cost.jobs}
            known_costs |= {"place": one.place, "at_most": one.at_most, "members": one.members}
        about = {"run": plan.target(run), "known": cost is not None, "chosen": run in chosen}
        runs.append({**about, "left_out": plan.left_out.get(run), **known_costs})
    starts = total(plan.costs[run].start_hours for run in plan.chosen)
    said = {
        "records": plan.records,
        "machines": plan.machines,
        "spent": {**asdict(plan.spent), "left": plan.spent.left},
        "node_hours": plan.budget,
        "wall_s": plan.wall_s,
        "chosen": {"node_hours": asdict(plan.hours(plan.chosen)), "starts": asdict(starts)},
        "runs": runs,
    }
    return json.dumps(said, indent=1)


def as_text(plan: Plan) -> str:
    """The plan for people: a table, three sentences, and the command."""
    if not plan.missing:
        return "nothing is missing"
    blocks = [_table(plan), _sentences(plan), _calls(plan)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _table(plan: Plan) -> list[str]:
    """A row for each point: first those to do first, in their order; then what is left out, and why."""
    first, left = dict[object, list[Run]](), dict[object, list[Run]]()
    for run in plan.chosen:
        first.setdefault(run.without("seed"), []).append(run)
    for run, why in plan.left_out.items():
        left.setdefault((run.without("seed"), why), []).append(run)
    rows = [["runs", "node-hours", "each", "jobs", "memory", "point"]]
    for runs in (*list(first.values())[:_ROWS], *list(left.values())[:_ROWS]):
        why = plan.left_out.get(runs[0], "")
        place = _PLACES[plan.costs[runs[0]].forecast.place] if runs[0] in plan.costs else ""
        about = f" (left out: {why})" if why else f" ({place})" * bool(place)
        rows.append([str(len(runs)), *_cells(plan, runs), runs[0].name.rpartition("/")[0] + about])
    lines = aligned(rows, right=[0, 1, 3])
    hidden = [(len(first) - _ROWS, "to do first"), (len(left) - _ROWS, "left out")]
    more = [f"{number} more {words}" for number, words in hidden if number > 0]
    if more:
        lines.append(f"... and {' and '.join(more)} (--json names all)")
    if plan.costs:
        starts = sum(plan.costs[run].start_hours.middle for run in plan.chosen)
        lines += [
            "",
            f"starts: {rounded(starts)} node-hours; a job's wait in the queue: {plan.spent.wait}; 90 % intervals, from "
            f"{counted(plan.records, 'record')} ({'; '.join(plan.machines)})",
        ]
    return lines


def _cells(plan: Plan, runs: Sequence[Run]) -> list[str]:
    """Node-hours of the runs of a point; and time, jobs and memory of each."""
    if runs[0] not in plan.costs:
        return ["?", "", "", ""]
    cost = plan.costs[runs[0]]
    one = cost.forecast
    memory = one.memory_bytes.times(one.run.ranks / one.run.nodes / 1e6)
    return [
        rounded(plan.hours(runs).middle),
        one.whole + f", {one.members} together" * (one.members > 1),
        str(cost.jobs),
        f"{rounded(memory.middle)} MB (to {rounded(memory.high)})",
    ]


def _sentences(plan: Plan) -> list[str]:
    """What comes first, what is left out, and what one run takes."""
    if {*plan.left_out.values()} <= {_UNKNOWN, _FITTED} and not plan.costs:
        return [f"{counted(len(plan.missing), 'run')} missing, and no record tells what any of them costs."]
    cost = plan.hours(plan.chosen)
    of = "" if plan.budget is None else f" of {rounded(plan.budget)}"
    said = [f"First: {counted(len(plan.chosen), 'run')} in {rounded(cost.middle)}{of} node-hours."]
    if not plan.chosen:
        said = [] if plan.budget is None else [f"{rounded(plan.budget)} node-hours complete no point."]
    if plan.left_out:
        most, number = Counter(plan.left_out.values()).most_common(1)[0]
        others = counted(len(plan.left_out) - number, "other")
        rest = f", and {others}" if number < len(plan.left_out) else ""
        if most == _OVER:
            more = plan.hours(run for run, why in plan.left_out.items() if why == _OVER).middle
            most += f" by {rounded(more)} node-hours"
        said.append(f"Left out: {counted(number, 'run')} ({most}){rest}.")
    longest = report.longest(plan.config, [plan.costs[run].forecast for run in plan.chosen or plan.costs])
    return [*said, *([f"The longest run: {longest}."] if longest else [])]


def _calls(plan: Plan) -> list[str]:
    """The commands that do first what is to be done first, or measured first."""
    lines = []
    if plan.probes:
        lines += ["Measure first, one of each kind of which no record tells:", *_call(plan, plan.probes)]
    if plan.chosen and (plan.budget is not None or plan.left_out):
        lines += _call(plan, plan.chosen)
    elif plan.chosen:
        lines.append(f"  {plan.command}")
    return lines


def _call(plan: Plan, runs: Sequence[Run]) -> list[str]:
    """The command that does these runs."""
    if runs == plan.chosen and len(runs) > _NAMED:
        return [f"  {plan.command} $(ketscale plan{plan.options} --targets)"]
    return [" \\\n    ".join([f"  {plan.command}", *(shlex.quote(plan.target(run)) for run in runs)])]
