"""What the missing runs of a config cost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from ketscale.config import Config, Settings
from ketscale.grid import Run
from ketscale.jobs import choice, cohorts, prepared
from ketscale.jobs.costs.forecast import Costs, Forecast
from ketscale.jobs.costs.law import Interval, total
from ketscale.jobs.provenance import code_hash
from ketscale.jobs.slurm import queue
from ketscale.measure.form import Record
from ketscale.training import checkpoint
from ketscale.words import counted, rounded


def forecasts(costs: Costs, config: Config, runs: Sequence[Run], root: Path) -> dict[Run, Forecast]:
    """The forecasts of all runs of which anything is known, from their checkpoints on, if these are trained and no others.

    root: the folder that the config's results folder is in.
    """
    results = root / config.results
    # Under SLURM, a job is a process of its own.
    cores = 1 if queue.available() else len(os.sched_getaffinity(0))
    dealt = cohorts.plan(map(config.settings, runs), cores) if config.cohorts else []
    together = {one.run: len(cohort) for cohort in dealt for one in cohort}
    found: dict[Run, Forecast] = {}
    alike: dict[object, Forecast | None] = {}
    with threadpool_limits(1):
        for run in runs:
            settings, members = choice.resolved(config.settings(run), results), together.get(run, 1)
            step = _step(config, settings, results)
            # Runs that differ in their seeds cost the same.
            key = run.without("seed"), settings.choice, step, members
            if key not in alike:
                alike[key] = costs.forecast(settings, members, step)
            if one := alike[key]:
                found[run] = replace(one, run=run)
    return found


def _step(config: Config, settings: Settings, results: Path) -> int:
    """The step from which a run would go on; 0 if it would start from the beginning."""
    folder = results / settings.run.folder
    if settings.protocol.timed or not (steps := checkpoint.steps(folder)):
        return 0
    features = prepared.features_hash(prepared.manifest(config, results, settings.run.workload))
    return steps.get(checkpoint.identify(settings.hash, features or "", code_hash()), 0)


@dataclass(frozen=True)
class Remainder:
    """What some runs will take, as far as records tell.

    known: those that have a forecast; the others count as zero.
    """

    runs: int
    known: int
    node_hours: Interval

    def __str__(self) -> str:
        if not self.known:
            return f"{counted(self.runs, 'run')}, of which no record tells what they take"
        middle, low, high = map(rounded, astuple(self.node_hours))
        some = f"{self.known} of " * (self.known < self.runs) + counted(self.runs, "run")
        return f"about {middle} node-hours ({low} to {high}) for {some}"


def remainder(
    config: Config, runs: Sequence[Run], root: Path, known: Mapping[Path, Record] | None = None
) -> Remainder:
    """What these runs of a config take from their checkpoints on. known: records that have been read, by their paths."""
    told = Costs.of(root / config.results, known=known) if runs else None
    found = forecasts(told, config, runs, root).values() if told else ()
    return Remainder(len(runs), len(found), total(one.node_hours for one in found))
