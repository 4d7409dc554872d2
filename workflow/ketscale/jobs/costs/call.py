"""What the runs cost that one call of Snakemake is to train, in the cohorts that it forms."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from ketscale.config import Config, Settings
from ketscale.grid import Run
from ketscale.jobs import choice, cohorts, prepared
from ketscale.jobs.costs.forecast import Asked, Costs, Forecast
from ketscale.jobs.costs.law import Interval, total
from ketscale.jobs.provenance import code_hash
from ketscale.jobs.slurm import packs, queue, site
from ketscale.measure.form import Record
from ketscale.training import checkpoint
from ketscale.words import counted, rounded


class Call:
    """The runs of a call, which of them one process may train together, and from which steps they go on."""

    def __init__(self, costs: Costs, config: Config, runs: Iterable[Run], root: Path) -> None:
        """root: the folder that the config's results folder is in."""
        self._costs, results = costs, root / config.results
        self._settings = {run: choice.resolved(config.settings(run), results) for run in runs}
        self._done = {run: _step(config, one, results) for run, one in self._settings.items()}
        self._cohorts: dict[Run, int] = {}
        if config.cohorts:
            every = map(config.settings, dict.fromkeys([*config.runs, *self._settings]))
            dealt = cohorts.plan(every, *_places(config, root))
            self._cohorts = {one.run: number for number, cohort in enumerate(dealt) for one in cohort}
        # Runs that differ in their seeds cost the same.
        self._alike = {
            run: (run.without("seed"), one.choice, self._done[run]) for run, one in self._settings.items()
        }
        self._forecasts: dict[object, Forecast | None] = {}

    def forecasts(self, runs: Iterable[Run] | None = None) -> dict[Run, Forecast]:
        """The forecasts of all runs of which anything is known, if the call trains only these of its runs."""
        runs = list(self._settings if runs is None else runs)
        members = Counter(self._cohorts.get(run, run) for run in runs)
        keys = {run: (self._alike[run], members[self._cohorts.get(run, run)]) for run in runs}
        new = {key: run for run, key in keys.items() if key not in self._forecasts}
        asked = (Asked(self._settings[run], key[1], self._done[run]) for key, run in new.items())
        self._forecasts |= zip(new, self._costs.forecast(asked), strict=True)
        told = {run: one for run, key in keys.items() if (one := self._forecasts[key])}
        parts: dict[object, list[tuple[Run, Interval]]] = {}
        for run, one in told.items():
            parts.setdefault(self._cohorts.get(run, run), []).append((run, one.seconds))
        others = {
            run: total(seconds for other, seconds in of if other != run)
            for of in parts.values()
            for run, _ in of
        }
        return {run: replace(one, run=run, others_s=others[run]) for run, one in told.items()}


def _step(config: Config, settings: Settings, results: Path) -> int:
    """The step from which a run would go on; 0 if it would start from the beginning."""
    folder = results / settings.run.folder
    if settings.protocol.timed or not (steps := checkpoint.steps(folder)):
        return 0
    features = prepared.features_hash(prepared.manifest(config, results, settings.run.workload))
    return steps.get(checkpoint.identify(settings.hash, features or "", code_hash()), 0)


def _places(config: Config, root: Path) -> tuple[int, Callable[[Run], str]]:
    """The cores on which jobs run at a time, and what the runs of a job group share."""
    if not queue.available():
        return len(os.sched_getaffinity(0)), lambda run: ""
    # Under SLURM, a job is a process of its own.
    path = site.path_of(root)
    if not path.exists():
        return 1, lambda run: ""
    of_site = site.load_site(config.sizes, config.size_names, path)
    named = packs.packs(config.runs, config.timed, of_site, config.is_trial)
    return 1, lambda run: named.get(run) or packs.name_alone(run)


@dataclass(frozen=True)
class Remainder:
    """What some runs will take, as far as records tell.

    known: those that have a forecast; the others count as zero. at_most: those of the known that may stop early, and no
    record says when.
    """

    runs: int
    known: int
    at_most: int
    node_hours: Interval

    def __str__(self) -> str:
        if not self.known:
            return f"{counted(self.runs, 'run')}, of which no record tells what they take"
        middle, low, high = map(rounded, astuple(self.node_hours))
        about = "at most" if self.at_most else "about"
        some = f"{self.known} of " * (self.known < self.runs) + counted(self.runs, "run")
        return f"{about} {middle} node-hours ({low} to {high}) for {some}"


def remainder(
    config: Config, runs: Sequence[Run], root: Path, known: Mapping[Path, Record] | None = None
) -> Remainder:
    """What these runs of a config take from their checkpoints on. known: records that have been read, by their paths."""
    told = Costs.of(root / config.results, known=known) if runs else None
    forecasts = [*Call(told, config, runs, root).forecasts().values()] if told else []
    at_most = sum(one.at_most for one in forecasts)
    return Remainder(len(runs), len(forecasts), at_most, total(one.node_hours for one in forecasts))
