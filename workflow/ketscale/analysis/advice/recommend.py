"""`ketscale recommend`: on which simulator and layout of this machine a run trains fastest, and how sure that is."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec

from ketscale.analysis import verdicts
from ketscale.analysis.comparison import RESOLUTION, Compared, paired
from ketscale.analysis.intervals import Estimate
from ketscale.config import Config, Settings
from ketscale.errors import UserError, short
from ketscale.grid import PREPARED, RECORD, Run, layout
from ketscale.measure.record import check
from ketscale.words import aligned, duration

# Below the results folder, so that no table mistakes trials for runs.
FOLDER = "trials"
ROUNDS, STEPS, LEAST_S = 5, 40, 20.0
# The median step in seconds, by candidate and round.
Steps = dict[Run, dict[int, float]]


def recommend(config: Config, runs: Sequence[Run], limit_s: float) -> str:
    """Try the candidates for at most so many seconds: a table of them, and which to take."""
    steps, failed = trials(config, runs, limit_s)
    if not steps:
        raise UserError(f"no trial ended; the first says: {next(iter(failed.values()))}")
    order = sorted(steps, key=lambda run: statistics.median(steps[run].values()))
    ratios = [paired(steps[run], steps[order[0]], RESOLUTION) for run in order]
    words = verdicts.ratios([Compared(each and each.inverse()) for each in ratios[1:]])
    rows = [["simulator", "layout", "step (95 %)", "times as long (95 %)", "verdict"]]
    near = []
    for run, ratio, (word, why) in zip(order, ratios, [("fastest", ""), *words], strict=True):
        if run in hopeless(steps):
            word, why = verdicts.SLOWER, "out after the first round"
        near += [run] if word != verdicts.SLOWER and run not in failed else []
        why = failed.get(run, why)
        step = paired(steps[run], dict.fromkeys(steps[run], 1.0), RESOLUTION)
        cells = _text(step, duration), _text(ratio, "{:.2f}".format)
        rows.append([run.simulator, run.layout, *cells, f"{word} ({why})" if why else word])
    rows += [[run.simulator, run.layout, "", "", why] for run, why in failed.items() if run not in steps]
    best = min(near or order, key=lambda run: run.ranks * run.threads)
    reason = f", with the fewest cores of {len(near)} indistinguishable ones" if len(near) > 1 else ""
    return "\n".join([*aligned(rows), "", f"take {best.simulator} on {best.layout}{reason}"])


def candidates(config: Config, point: Run, simulators: Sequence[str], layouts: Sequence[str]) -> list[Run]:
    """The run on all of these simulators and layouts that the config allows; of a search, its first trial."""
    if unknown := {*simulators} - {*config.simulators, "none"}:
        raise UserError(f"no simulator is called {min(unknown)}; there are {', '.join(config.simulators)}")
    point, runs, why = next(config.trials_of(point), point), [], ""
    for simulator, text in product(simulators, layouts):
        run = replace(point, simulator=simulator, seed=0, **layout(text))
        try:
            config.settings(run)
            runs.append(run)
        except UserError as error:
            why = str(error)
    if not runs:
        raise UserError(f"no simulator and layout fits: {why}")
    return runs


def _text(of: Estimate | None, write: Callable[[float], str]) -> str:
    ends = f" ({write(of.low)} to {write(of.high)})" if of and of.low and of.high else ""
    return write(of.value) + ends if of else ""


def trials(config: Config, candidates: Sequence[Run], limit_s: float) -> tuple[Steps, dict[Run, str]]:
    """The steps, and why some candidates failed, when the rounds or so many seconds are over."""
    steps, failed = Steps(), dict[Run, str]()
    end = time.monotonic() + limit_s
    for number in range(ROUNDS):
        turn = [one for one in candidates if one not in {*failed, *hopeless(steps)}]
        for place, one in enumerate(turn):
            if (remaining_s := end - time.monotonic()) <= 0:
                return steps, {**dict.fromkeys({*candidates} - {*steps}, "no time was left"), **failed}
            # No more than twice its share, so that a slow one leaves time to those after it.
            share_s = min(remaining_s, max(LEAST_S, 2 * remaining_s / (len(turn) - place)))
            step_s = _step_s(Path(config.results), config.settings(one), number, share_s)
            if isinstance(step_s, str):
                failed[one] = step_s
            else:
                steps.setdefault(one, {})[number] = step_s
    return steps, failed


def hopeless(steps: Steps) -> set[Run]:
    """The candidates whose first step takes more than three times as long as the fastest: they have no second round."""
    fastest = min((times[0] for times in steps.values()), default=0.0)
    return {one for one, times in steps.items() if times[0] > 3 * fastest}


def _step_s(results: Path, settings: Settings, seed: int, limit_s: float) -> float | str:
    """The median step of a short and timed run with this seed, or why there is none."""
    protocol = msgspec.structs.replace(
        settings.protocol, epochs=None, steps=STEPS, warmup=2, sampled_steps=0, timed=True, plateau=None,
        early_stopping=None, keep_model=False, limit_s=None,
    )  # fmt: skip
    settings = replace(settings, run=replace(settings.run, seed=seed), protocol=protocol)
    folder = results / FOLDER / settings.run.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    call = [sys.executable, "-m", "ketscale", "launch", str(folder / RECORD), "--settings", settings.text]
    if settings.family.prepared:
        call += ["--features", str(results / PREPARED.format(workload=settings.run.workload))]
    log = folder / "train.log"
    with log.open("wb") as file, subprocess.Popen(call, stdout=file, stderr=file) as child:
        try:
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"did not finish {STEPS} steps in {limit_s:.0f} s"
        finally:
            # The launcher ends its ranks.
            child.terminate()
    state = check(folder / RECORD, settings, None)
    if child.returncode or state.record is None or state.state != "completed":
        return short(state.why or log.read_text("utf-8", "replace").strip().rpartition("\n")[2])
    return state.record.timing.step.median_s or "it has no steady step"
