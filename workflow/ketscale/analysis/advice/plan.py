"""`ketscale plan`: what the missing runs of a study will cost, and which to do first on a budget."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ketscale.analysis.advice import priority, scaled
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import choice
from ketscale.jobs.costs.features import known
from ketscale.jobs.costs.forecast import Forecast, Forecaster, total
from ketscale.jobs.costs.interval import Interval, between
from ketscale.jobs.status import report
from ketscale.words import aligned, counted, rounded

# Runs that are not to be started: they have a result, or are on their way to one.
_COMING = ("done", "running", "waiting", "queued")
_POINTS, _NAMED = 20, 12
_LIMITED = ("workload", "model", "simulator", "backend", "protocol", "batch")
# On top of the upper ends of the intervals, of which 5 % are exceeded. A retry asks for more, but starts again later.
_MORE_TIME, _MORE_MEMORY = 1.5, 1.25
_MEGABYTES = 100
_COSTS = ("wall_s", "step_s", "memory_bytes", "node_hours")
_PLACES = {"repeat": "", "within": "between records", "beyond": "beyond the records"}


@dataclass(frozen=True)
class Plan:
    """What is missing, what is known of its cost, and what to do first.

    options: of this call, to repeat it. missing: runs to be started. unplanned: those on more ranks than the records, and
    why no model plans them. unknown: those of which nothing is known; probes: some of them that would tell. chosen: the
    runs to do first: on a budget those that it pays for, else all that are known.
    """

    config: Config
    command: str
    options: str
    records: int
    machines: tuple[str, ...]
    missing: tuple[Run, ...]
    forecasts: dict[Run, Forecast]
    unplanned: dict[Run, str]
    unknown: tuple[Run, ...]
    probes: tuple[Run, ...]
    node_hours: float | None
    chosen: tuple[Run, ...]

    def target(self, run: Run) -> str:
        """A run as a target of Snakemake."""
        return f"{self.config.results}/{run.path}"


def make(
    config: Config, configfile: Path, node_hours: float | None, folders: Sequence[Path], root: Path
) -> Plan:
    """The plan for what is missing of a config's runs below `root`.

    Args:
        node_hours: the budget; None for none.
        folders: results folders whose records tell costs, beside the config's own.

    Raises:
        UserError: the site file exists but is invalid.
    """
    seen = report.states(config, root)[1]
    forecaster = Forecaster.of(root / config.results, *folders)
    coming = {one.run for one in seen if one.state in _COMING}
    missing = tuple(one.run for one in seen if one.run not in coming)
    settings = [choice.resolved(config.settings(run), root / config.results) for run in missing]
    forecasts = forecaster.of_runs(settings)
    unknown = tuple(run for run in missing if run not in forecasts)
    chosen = [run for run in missing if run in forecasts]
    if node_hours is not None:
        chosen = priority.choose(config, coming, forecasts, node_hours)
    return Plan(
        config,
        report.command(configfile),
        _options(configfile, node_hours, folders),
        len(forecaster.model.samples),
        forecaster.machines,
        missing,
        forecasts,
        forecaster.unplanned(settings),
        unknown,
        _probes(config, unknown),
        node_hours,
        tuple(chosen),
    )


def _options(configfile: Path, node_hours: float | None, folders: Sequence[Path]) -> str:
    config = [] if configfile == Path("config.yaml") else ["--config", str(configfile)]
    budget = [] if node_hours is None else ["--node-hours", f"{node_hours:g}"]
    records = [word for folder in folders for word in ("--records", str(folder))]
    return shlex.join([*config, *budget, *records])


def _probes(config: Config, unknown: Iterable[Run]) -> tuple[Run, ...]:
    """A small run of each model, simulator and backend: with their records something is known of all the others.

    A fit or a probe tells nothing of another, and what a search chose trains after its trials.
    """

    def size(run: Run) -> tuple[int, ...]:
        return (run.seed, run.ranks * run.threads, sum(config.sizes(run).values()), run.batch)

    smallest: dict[object, Run] = {}
    protocols = config.protocols
    stepped = (
        run for run in unknown if protocols[run.protocol].stepped and protocols[run.protocol].search is None
    )
    for run in sorted(stepped, key=size):
        smallest.setdefault(known(config.settings(run).content), run)
    return tuple(smallest.values())


def as_targets(plan: Plan) -> str:
    """The runs to do first, a target of Snakemake in each line.

    Raises:
        UserError: there are none. Snakemake without a target would run the whole study.
    """
    if not plan.chosen:
        raise UserError(
            "no missing run with a forecast fits the budget: raise --node-hours, or measure one of each kind first"
            if plan.missing
            else "nothing is missing, so there is no target"
        )
    return "\n".join(plan.target(run) for run in plan.chosen)


def as_limits(plan: Plan) -> str:
    """Lines for the site file: one for each model's size with a simulator, backend, batch and protocol, whatever the layout.

    Of runs beyond the records none, since an upper end there is no promise.
    """
    alike: dict[str, list[Forecast]] = {}
    for one in plan.forecasts.values():
        axes = {axis: getattr(one.run, axis) for axis in _LIMITED} | plan.config.sizes(one.run)
        if one.place != "beyond":
            alike.setdefault(", ".join(f"{name}: {value}" for name, value in axes.items()), []).append(one)
    said = []
    for named, of in alike.items():
        minutes = max(1, math.ceil(_MORE_TIME * max(one.wall_s.high for one in of) / 60))
        memory = _MORE_MEMORY * max(one.memory_bytes.high for one in of) / 1e6
        megabytes = _MEGABYTES * math.ceil(memory / _MEGABYTES)
        said.append(f"  - {{{named}, minutes: {minutes}, memory_mb: {megabytes}}}")
    if beyond := len(plan.forecasts) - sum(map(len, alike.values())):
        runs = counted(beyond, "run")
        said.append(f"# {runs} beyond the records: give their limits by hand, or measure smaller ones first")
    none = "# no missing run has a forecast: measure first" if plan.missing else "# nothing is missing"
    return "\n".join(said or [none])


def as_json(plan: Plan) -> str:
    """The plan for scripts."""
    runs, chosen = [], set(plan.chosen)
    for run in plan.missing:
        one, costs = plan.forecasts.get(run), dict[str, object]()
        if one:
            costs = {name: asdict(getattr(one, name)) for name in _COSTS}
            costs |= {"place": one.place, "at_most": one.at_most, "planned": scaled.parts(one)}
        about = {"run": plan.target(run), "known": one is not None, "chosen": run in chosen}
        runs.append({**about, **costs})
    return json.dumps({"records": plan.records, "node_hours": plan.node_hours, "runs": runs}, indent=1)


def as_text(plan: Plan) -> str:
    """The plan for people."""
    if not plan.missing:
        return "nothing is missing"
    beyond = scaled.lines(plan.forecasts.values(), plan.unplanned.values())
    blocks = [_head(plan), _table(plan), beyond, _unknown(plan), _first(plan)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _head(plan: Plan) -> list[str]:
    trials = sum(map(plan.config.is_trial, plan.missing))
    searched = f", {counted(trials, 'trial')} of searches among them" if trials else ""
    if not plan.forecasts:
        runs = counted(len(plan.missing), "run")
        first = ", and no record tells what any of them costs: measure first" if plan.probes else ""
        return [f"{runs} missing{searched}{first}"]
    unknown = f", and {len(plan.unknown)} of unknown cost" if plan.unknown else ""
    return [
        f"{counted(len(plan.forecasts), 'missing run')}: {_hours(total(plan.forecasts.values()))}{unknown}{searched}",
        f"learned from {counted(plan.records, 'record')} ({'; '.join(plan.machines)}); 90 % intervals",
    ]


def _table(plan: Plan) -> list[str]:
    points: dict[object, list[Forecast]] = {}
    for one in plan.forecasts.values():
        points.setdefault(one.run.without("seed"), []).append(one)
    costly = sorted(points.values(), key=lambda of: -sum(one.node_hours.middle for one in of))
    rows = [["runs", "time of each", "step", "memory", ""]]
    for of in costly[:_POINTS]:
        one = of[0]
        per_node = one.memory_bytes.times(one.run.ranks / one.run.nodes / 1e6)
        memory = f"{rounded(per_node.middle)} MB (to {rounded(per_node.high)})"
        place = scaled.MARK if one.scaled else _PLACES[one.place]
        name = one.run.name.rpartition("/")[0] + f" ({place})" * bool(place)
        rows.append([str(len(of)), one.whole, between(one.step_s), memory, name])
    more = [f"... and {counted(len(costly) - _POINTS, 'cheaper point')}"] if len(costly) > _POINTS else []
    return [*aligned(rows), *more] if costly else []


def _unknown(plan: Plan) -> list[str]:
    if not plan.unknown:
        return []
    fits = sum(not plan.config.protocols[run.protocol].stepped for run in plan.unknown)
    said = (
        [f"{counted(fits, 'run')} that fit or probe a model, of which no steps tell the time"] if fits else []
    )
    if not plan.probes:
        return said
    runs = counted(len(plan.unknown) - fits, "run")
    why = f"{runs} of models, simulators, backends or sizes that no record is near. These would tell:"
    return [*said, why, *_call(plan, plan.probes)]


def _first(plan: Plan) -> list[str]:
    if plan.node_hours is None or not plan.forecasts:
        return []
    budget = f"{rounded(plan.node_hours)} node-hours"
    if not plan.chosen:
        return [f"{budget} complete no point"]
    cost = total(plan.forecasts[run] for run in plan.chosen)
    over = "; by the upper end that is more than the budget" if cost.high > plan.node_hours else ""
    runs = counted(len(plan.chosen), "run")
    return [f"on {budget} first: {runs}, {_hours(cost)}{over}", *_call(plan, plan.chosen)]


def _call(plan: Plan, runs: Sequence[Run]) -> list[str]:
    """The command that does these runs."""
    if runs == plan.chosen and len(runs) > _NAMED:
        return [f"  {plan.command} $(ketscale plan {plan.options} --targets)"]
    return [" \\\n    ".join([f"  {plan.command}", *(shlex.quote(plan.target(run)) for run in runs)])]


def _hours(cost: Interval) -> str:
    return f"{rounded(cost.middle)} node-hours ({rounded(cost.low)} to {rounded(cost.high)})"
