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
from ketscale.errors import UserError, short
from ketscale.files import read_text
from ketscale.grid import PREPARED, RECORD, Run
from ketscale.measure.record import check

# Below the results folder, so that no table takes trials for runs.
FOLDER = "trials"
ROUNDS, STEPS, WARMUP = 5, 40, 2
# A candidate whose first step takes so many times as long as the fastest has no second round.
HOPELESS = 3.0
LEAST_S = 20.0


def run(
    config: Config, candidates: Sequence[Run], root: Path, limit_s: float
) -> tuple[dict[Run, dict[int, float]], dict[Run, str]]:
    """The median step in seconds by candidate and round, and why some failed, until the time or the rounds are over.

    root: the folder of the config's results folder.

    Raises:
        UserError: the workload's data are not prepared.
    """
    steps: dict[Run, dict[int, float]] = {}
    failed: dict[Run, str] = {}
    end = time.monotonic() + limit_s
    for number in range(ROUNDS):
        most = HOPELESS * min((found[0] for found in steps.values()), default=0.0)
        turn = [one for one in candidates if one not in failed and (not number or steps[one][0] <= most)]
        for place, one in enumerate(turn):
            if (left_s := end - time.monotonic()) <= 0:
                return steps, {**dict.fromkeys({*candidates} - {*steps}, "no time was left"), **failed}
            # No more than twice its share, so that a slow one leaves time to those after it.
            share_s = min(left_s, max(LEAST_S, 2 * left_s / (len(turn) - place)))
            found = _step_s(config, _short(config.settings(one), number), root, share_s)
            if isinstance(found, str):
                failed[one] = found
            else:
                steps.setdefault(one, {})[number] = found
    return steps, failed


def _short(settings: Settings, seed: int) -> Settings:
    """The same step, timed, with few of them and this seed."""
    protocol = msgspec.structs.replace(
        settings.protocol, epochs=None, steps=STEPS, warmup=WARMUP, sampled_steps=0, timed=True, plateau=None,
        early_stopping=None, keep_model=False, limit_s=None,
    )  # fmt: skip
    return replace(settings, run=replace(settings.run, seed=seed), protocol=protocol)


def _step_s(config: Config, settings: Settings, root: Path, limit_s: float) -> float | str:
    """The median step of one trial, or why there is none."""
    folder = root / config.results / FOLDER / settings.run.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    call = [sys.executable, "-m", "ketscale", "launch", str(folder / RECORD), "--settings", settings.text]
    if settings.family.prepared:
        manifest = root / config.results / PREPARED.format(workload=settings.run.workload)
        if not manifest.exists():
            raise UserError(f"{manifest} is missing; run `ketscale prepare {settings.run.workload}` first")
        call += ["--features", str(manifest)]
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
