"""The record of every run of a config, checked by itself, against its data and against the other runs' records.

Status and tables both use it, so that no run is done in one and refused in the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ketscale.config import Config, Settings
from ketscale.errors import UserError, short
from ketscale.grid import Run
from ketscale.jobs import choice, prepared, supervise
from ketscale.jobs.choice import Choice
from ketscale.measure import parity
from ketscale.measure.parity import Comparison
from ketscale.measure.record import State, check, check_single

# Reasons that are listed.
_REASONS = 4


@dataclass(frozen=True)
class Records:
    """What was found of every run of the config's studies, in scheduling order, and the runs that were compared.

    settings: of each run, with what its search has chosen.
    """

    settings: Mapping[Run, Settings]
    checked: Mapping[Run, State]
    comparisons: tuple[Comparison, ...]


def read(config: Config, results: Path) -> Records:
    """Read and check the records below `results`.

    Raises:
        UserError: a source file of a workload cannot be read.
    """
    workloads = dict.fromkeys(run.workload for run in config.runs)
    features = {name: prepared.features_hash(prepared.manifest(config, results, name)) for name in workloads}
    outdated = {name for name in workloads if prepared.outdated(config, results, name)}
    settings_of: dict[Run, Settings] = {}
    states: dict[Run, State] = {}
    choices: dict[object, Choice | UserError | None] = {}
    for run in config.runs:
        settings, hashed = config.settings(run), features[run.workload]
        if settings.protocol.search is not None:
            if (point := run.without("seed")) not in choices:
                trials = {trial: states[trial] for trial in config.trials_of(run)}
                choices[point] = _choice(settings, trials, hashed)
            if isinstance(choice := choices[point], Choice):
                settings = settings.chosen(choice.chosen, choice.hash)
        settings_of[run] = settings
        state = check(results / run.path, settings, hashed)
        if state.state == "missing" and isinstance(failed := choices.get(run.without("seed")), UserError):
            state = State("missing", str(failed))
        if state.record is not None and run.workload in outdated:
            state = State(
                "stale",
                "trained on other data: its workload's settings or source files have changed since they were prepared",
            )
        states[run] = state
    comparisons = parity.compare(states)
    return Records(settings_of, parity.refuse(states, comparisons), tuple(comparisons))


def _choice(
    settings: Settings, trials: Mapping[Run, State], features: str | None
) -> Choice | UserError | None:
    """What a search has chosen for a run, or why it cannot; None before all of its trials have records."""
    if not all(trial.record for trial in trials.values()):
        return None
    try:
        return choice.of(settings, trials, features)
    except UserError as error:
        return error


def set_aside(paths: Iterable[Path]) -> list[Path]:
    """Rename the records at some paths that are damaged or edited, so that their runs are trained again; where they are then.

    Those that differ from other runs' stay: they would be the same again.
    """
    from ketscale.problems.registry import FAMILIES

    readable = [path for path in paths if os.access(path, os.R_OK)]
    damaged = (path for path in readable if check_single(path, FAMILIES)[0].state == "refused")
    return [path.replace(path.with_name("metrics.damaged.json")) for path in damaged]


def why_missing(folder: Path) -> str:
    """Why a run has no record, as its launcher noted it; '' if it has not."""
    return str((supervise.read_note(folder) or {}).get("reason", ""))


def by_reason(runs: Iterable[tuple[str, str, str]]) -> list[str]:
    """Runs, each with its state, the reason and its name, in at most nine lines: the most frequent reasons with one run each."""
    alike: dict[tuple[str, str], list[str]] = {}
    for state, reason, name in runs:
        alike.setdefault((state, reason), []).append(name)
    lines = []
    ordered = sorted(alike.items(), key=lambda one: -len(one[1]))
    for (state, reason), names in ordered[:_REASONS]:
        lines += [
            f"{len(names)} {state}: {short(reason or 'not run yet')}",
            f"    {'such as ' * (len(names) > 1)}{names[0]}",
        ]
    rest = sum(len(names) for _, names in ordered[_REASONS:])
    return [*lines, f"... and {rest} more, for {len(ordered) - _REASONS} other reasons"] if rest else lines
