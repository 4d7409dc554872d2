"""Short trainings of the candidates for a recommendation, in turns, through `ketscale launch`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from ketscale.config import Config, Settings
from ketscale.errors import short
from ketscale.files import read_text
from ketscale.grid import PREPARED, RECORD, Run
from ketscale.measure.record import check

# Below the results folder, so that no table takes trials for runs.
FOLDER = "trials"
ROUNDS, STEPS, LEAST_S = 5, 40, 20.0
# The median step in seconds, by candidate and round.
Steps = dict[Run, dict[int, float]]


def run(config: Config, candidates: Sequence[Run], limit_s: float) -> tuple[Steps, dict[Run, str]]:
    """The steps, and why some candidates failed, when the rounds or so many seconds are over."""
    steps, failed = Steps(), dict[Run, str]()
    end = time.monotonic() + limit_s
    for number in range(ROUNDS):
        turn = [one for one in candidates if one not in {*failed, *hopeless(steps)}]
        for place, one in enumerate(turn):
            if (left_s := end - time.monotonic()) <= 0:
                return steps, {**dict.fromkeys({*candidates} - {*steps}, "no time was left"), **failed}
            # No more than twice its share, so that a slow one leaves time to those after it.
            share_s = min(left_s, max(LEAST_S, 2 * left_s / (len(turn) - place)))
            found = _step_s(Path(config.results), config.settings(one), number, share_s)
            if isinstance(found, str):
                failed[one] = found
            else:
                steps.setdefault(one, {})[number] = found
    return steps, failed


def hopeless(steps: Steps) -> set[Run]:
    """The candidates whose first step takes more than three times as long as the fastest: they have no second round."""
    fastest = min((found[0] for found in steps.values()), default=0.0)
    return {one for one, found in steps.items() if found[0] > 3 * fastest}


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
    found = check(folder / RECORD, settings, None)
    if child.returncode or found.record is None or found.state != "completed":
        return short(found.why or read_text(log, errors="replace").strip().rpartition("\n")[2])
    return found.record.timing.step.median_s or "it has no steady step"
