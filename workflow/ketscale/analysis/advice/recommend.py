"""`ketscale recommend`: on which simulator and layout of this machine a run trains fastest, and how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ketscale.analysis import verdicts
from ketscale.analysis.advice import trials
from ketscale.analysis.comparison import RESOLUTION, Compared, paired
from ketscale.analysis.intervals import Estimate
from ketscale.config import Config, suggestion
from ketscale.errors import UserError
from ketscale.grid import Run, layout
from ketscale.words import aligned, duration


def recommend(config: Config, runs: Sequence[Run], root: Path, limit_s: float) -> str:
    """Try the candidates for at most so many seconds: a table of them, and which to take.

    root: the folder of the config's results folder.

    Raises:
        UserError: no trial ended, or the data are not prepared.
    """
    steps, failed = trials.run(config, runs, root, limit_s)
    if not steps:
        raise UserError(f"no trial ended: {'; '.join(f'{_name(run)} {why}' for run, why in failed.items())}")
    order = sorted(steps, key=lambda run: statistics.median(steps[run].values()))
    ratios = [paired(steps[run], steps[order[0]], RESOLUTION) for run in order]
    found = verdicts.ratios([*map(Compared, ratios[1:])], above=verdicts.SLOWER, below=verdicts.FASTER)
    rows = [["simulator", "layout", "step (95 %)", "times as long (95 %)", "verdict"]]
    near = []
    for run, ratio, (word, why) in zip(order, ratios, [("fastest", ""), *found], strict=True):
        if run in failed:
            word, why = verdicts.FAILED, failed[run]
        elif ratio and ratio.value > trials.HOPELESS:
            word, why = verdicts.SLOWER, "out after the first round"
        if word not in (verdicts.SLOWER, verdicts.FAILED):
            near.append(run)
        step = paired(steps[run], dict.fromkeys(steps[run], 1.0), RESOLUTION)
        cells = _shown(step, duration), _shown(ratio, "{:.2f}".format)
        rows.append([run.simulator, run.layout, *cells, f"{word} ({why})" if why else word])
    rows += [[run.simulator, run.layout, "", "", why] for run, why in failed.items() if run not in steps]
    best = min(near or order, key=lambda run: run.ranks * run.threads)
    reason = f", with the fewest cores of {len(near)} that cannot be told apart" if len(near) > 1 else ""
    return "\n".join([*aligned(rows), "", f"take {_name(best)}{reason}"])


def candidates(config: Config, point: Run, simulators: Sequence[str], layouts: Sequence[str]) -> list[Run]:
    """The run on all of these simulators and layouts that the config allows; of a search, its first trial.

    Raises:
        UserError: no simulator has such a name, or nothing fits.
    """
    for name in simulators:
        if name not in (*config.simulators, "none"):
            raise UserError(f"no simulator is called {name}{suggestion(name, [*config.simulators])}")
    point, found, why = next(config.trials_of(point), point), [], ""
    for run in (
        replace(point, simulator=name, seed=0, **layout(of)) for name in simulators for of in layouts
    ):
        try:
            config.settings(run)
            found.append(run)
        except UserError as error:
            why = str(error)
    if not found:
        raise UserError(f"no simulator and layout fits: {why}")
    return found


def _name(run: Run) -> str:
    return f"{run.simulator} on {run.layout}"


def _shown(found: Estimate | None, write: Callable[[float], str]) -> str:
    if found is None:
        return ""
    ends = (found.low, found.high)
    return write(found.value) + (f" ({' to '.join(write(end) for end in ends if end)})" if all(ends) else "")
