"""What the runs cost that one call of Snakemake is to train, in the cohorts that it forms."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ketscale.config import Config, Settings
from ketscale.grid import BACKENDS, Run
from ketscale.jobs import choice, cohorts, prepared
from ketscale.jobs.costs.forecast import Costs, Forecast, Parts
from ketscale.jobs.costs.law import total
from ketscale.jobs.provenance import code_hash
from ketscale.jobs.slurm import packs, queue, site
from ketscale.training import checkpoint
from ketscale.words import counted, duration, spelled


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
        numbers: dict[object, int] = {}
        self._points = {
            run: numbers.setdefault((run.without("seed"), one.choice), len(numbers))
            for run, one in self._settings.items()
        }
        self._parts: dict[tuple[int, int], Parts | None] = {}

    def forecasts(self, runs: Iterable[Run] | None = None) -> dict[Run, Forecast]:
        """The forecasts of all runs of which anything is known, if the call trains only these of its runs."""
        found: dict[object, list[Run]] = {}
        for run in self._settings if runs is None else runs:
            found.setdefault(self._cohorts.get(run, run), []).append(run)
        self._ask((run, len(of)) for of in found.values() for run in of)
        made: dict[Run, Forecast] = {}
        for of in found.values():
            parts = {run: self._parts[self._points[run], len(of)] for run in of}
            known = [part.of(run, self._done[run]) for run, part in parts.items() if part]
            # Equal runs of a cohort are told equal.
            if len({(self._points[one.run], self._done[one.run]) for one in known}) > 1:
                whole = total(one.seconds for one in known)
                known = [replace(one, others_s=whole.minus(one.seconds)) for one in known]
            made |= {one.run: one for one in known}
        return made

    def _ask(self, sizes: Iterable[tuple[Run, int]]) -> None:
        """Have costs told of runs in cohorts of such sizes."""
        new = {(self._points[run], number): (self._settings[run], number) for run, number in sizes}
        new = {key: one for key, one in new.items() if key not in self._parts}
        self._parts |= zip(new, self._costs.parts(new.values()), strict=True)


def _step(config: Config, settings: Settings, results: Path) -> int:
    """The step from which a run would go on; 0 if it would start from the beginning."""
    folder = results / settings.run.folder
    if settings.protocol.timed or not (steps := checkpoint.steps(folder)):
        return 0
    features = prepared.features_hash(prepared.manifest(config, results, settings.run.workload))
    return steps.get(checkpoint.identify(settings.hash, features or "", code_hash()), 0)


def _places(config: Config, root: Path) -> tuple[int, Callable[[Run], str]]:
    """The cores on which jobs run at a time, and what the runs of a job group share."""
    if not queue.available(root):
        return len(os.sched_getaffinity(0)), lambda run: ""
    # Under SLURM, a job is a process of its own.
    path = site.path_of(root)
    if not path.exists():
        return 1, lambda run: ""
    of_site = site.load_site(config.sizes, config.size_names, path)
    named = packs.packs(config.runs, config.timed, of_site, config.is_trial)
    return 1, lambda run: named.get(run) or packs.name_alone(run)


def longest(config: Config, forecasts: Iterable[Forecast]) -> str:
    """What the longest of some runs takes at its real size, in words; '' if nothing is known of any."""
    one = max(forecasts, key=lambda one: one.wall_s.middle, default=None)
    if one is None:
        return ""
    run, protocol = one.run, config.settings(one.run).protocol
    length = counted(protocol.epochs, "epoch") if protocol.epochs else counted(protocol.steps or 0, "step")
    kind = "GPU" if BACKENDS[run.backend].device == "gpu" else "core"
    workers = run.ranks if kind == "GPU" else run.ranks * run.threads
    together = f", {one.members} runs together" if one.members > 1 else ""
    about = f"{'at most ' * one.at_most or 'about '}{duration(one.wall_s.middle, 2)}"
    return f"{run.model} {run.size} on {run.workload}, {length}: {about} on {spelled(workers)} {kind}{'s' * (workers > 1)}{together}"
