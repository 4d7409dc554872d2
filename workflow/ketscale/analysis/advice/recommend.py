"""`ketscale recommend`: on which simulator and layout of this machine a run trains fastest, and how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from ketscale.analysis import verdicts
from ketscale.analysis.advice import trials
from ketscale.analysis.comparison import RESOLUTION, Compared, paired
from ketscale.analysis.intervals import Estimate
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run, layout
from ketscale.words import aligned, duration


def recommend(config: Config, runs: Sequence[Run], limit_s: float) -> str:
    """Try the candidates for at most so many seconds: a table of them, and which to take.

    Raises:
        UserError: no trial ended.
    """
    steps, failed = trials.run(config, runs, limit_s)
    if not steps:
        raise UserError(f"no trial ended; the first says: {next(iter(failed.values()))}")
    order = sorted(steps, key=lambda run: statistics.median(steps[run].values()))
    ratios = [paired(steps[run], steps[order[0]], RESOLUTION) for run in order]
    found = verdicts.ratios([Compared(each and each.inverse()) for each in ratios[1:]])
    rows = [["simulator", "layout", "step (95 %)", "times as long (95 %)", "verdict"]]
    near = []
    for run, ratio, (word, why) in zip(order, ratios, [("fastest", ""), *found], strict=True):
        if run in trials.hopeless(steps):
            word, why = verdicts.SLOWER, "out after the first round"
        near += [run] if word != verdicts.SLOWER and run not in failed else []
        why = failed.get(run, why)
        step = paired(steps[run], dict.fromkeys(steps[run], 1.0), RESOLUTION)
        cells = _shown(step, duration), _shown(ratio, "{:.2f}".format)
        rows.append([run.simulator, run.layout, *cells, f"{word} ({why})" if why else word])
    rows += [[run.simulator, run.layout, "", "", why] for run, why in failed.items() if run not in steps]
    best = min(near or order, key=lambda run: run.ranks * run.threads)
    reason = f", with the fewest cores of {len(near)} that cannot be told apart" if len(near) > 1 else ""
    return "\n".join([*aligned(rows), "", f"take {best.simulator} on {best.layout}{reason}"])


def candidates(config: Config, point: Run, simulators: Sequence[str], layouts: Sequence[str]) -> list[Run]:
    """The run on all of these simulators and layouts that the config allows; of a search, its first trial.

    Raises:
        UserError: no simulator has such a name, or nothing fits.
    """
    if unknown := {*simulators} - {*config.simulators, "none"}:
        raise UserError(f"no simulator is called {min(unknown)}; there are {', '.join(config.simulators)}")
    point, found, why = next(config.trials_of(point), point), [], ""
    for simulator, text in product(simulators, layouts):
        run = replace(point, simulator=simulator, seed=0, **layout(text))
        try:
            config.settings(run)
            found.append(run)
        except UserError as error:
            why = str(error)
    if not found:
        raise UserError(f"no simulator and layout fits: {why}")
    return found


def _shown(found: Estimate | None, write: Callable[[float], str]) -> str:
    ends = f" ({write(found.low)} to {write(found.high)})" if found and found.low and found.high else ""
    return write(found.value) + ends if found else ""
