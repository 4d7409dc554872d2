"""Short trainings of the candidates for a recommendation, in turn, through the launcher that every run has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from ketscale.config import Config, Settings
from ketscale.errors import UserError, short
from ketscale.files import read_text
from ketscale.grid import PREPARED, RECORD, Run
from ketscale.measure.record import check

# Trials have a results folder of their own below that of the config, so that no table takes them for runs.
FOLDER = "trials"
ROUNDS = 5
_STEPS, _WARMUP = 40, 2
# After the first round, candidates that take so many times as long as the fastest are out.
_HOPELESS = 3.0
_PATIENCE_S = 20.0
_LEAST_S = 20.0


@dataclass
class Trials:
    """What trials of the candidates showed.

    step_s: the median step by candidate, with seed 0, and round. failed: why a candidate has none.
    """

    step_s: dict[Run, dict[int, float]] = field(default_factory=dict)
    failed: dict[Run, str] = field(default_factory=dict)


def settings_of(settings: Settings, seed: int) -> Settings:
    """The settings of a trial: the same step, few of them, with the machine to itself, and no model kept."""
    protocol = settings.protocol
    short_one = msgspec.structs.replace(
        protocol,
        epochs=None,
        steps=max(_WARMUP + 1, min(protocol.steps or _STEPS, _STEPS)),
        warmup=_WARMUP,
        sampled_steps=0,
        timed=True,
        plateau=None,
        early_stopping=None,
        keep_model=False,
        # Trials have a time of their own.
        limit_s=None,
    )
    return replace(settings, run=replace(settings.run, seed=seed), protocol=short_one)


def run(
    config: Config,
    candidates: Sequence[Run],
    root: Path,
    limit_s: float,
    say: Callable[[str], None],
) -> Trials:
    """Try the candidates in turn, round by round, until the time is over or there are five rounds.

    Args:
        root: the folder that the config's results folder is in.

    Raises:
        UserError: the workload's data are not prepared.
    """
    found = Trials()
    end = time.monotonic() + limit_s
    for number in range(ROUNDS):
        turn = list(_left(candidates, found))
        for place, candidate in enumerate(turn):
            left = end - time.monotonic()
            if left <= 0:
                return found
            settings = settings_of(config.settings(candidate), number)
            # No more than twice its share, so that a slow one leaves time to those after it.
            share = min(left, max(_LEAST_S, 2 * left / (len(turn) - place)))
            said = _try(config, settings, root, share)
            if isinstance(said, str):
                found.failed[candidate] = said
                say(f"{candidate.simulator} {candidate.layout}: {said}")
            else:
                found.step_s.setdefault(candidate, {})[number] = said
    return found


def _left(candidates: Sequence[Run], found: Trials) -> Iterator[Run]:
    """The candidates that are worth another trial."""
    best = min((min(times.values()) for times in found.step_s.values()), default=0.0)
    for candidate in candidates:
        times = found.step_s.get(candidate)
        if candidate not in found.failed and (times is None or min(times.values()) <= _HOPELESS * best):
            yield candidate


def _try(config: Config, settings: Settings, root: Path, limit_s: float) -> float | str:
    """The median step in seconds of one trial, or why there is none."""
    results = root / config.results
    folder = results / FOLDER / settings.run.folder
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / RECORD
    record.unlink(missing_ok=True)
    call = [sys.executable, "-m", "ketscale", "launch", str(record), "--settings", settings.text]
    if settings.family.prepared:
        manifest = results / PREPARED.format(workload=settings.run.workload)
        if not manifest.exists():
            raise UserError(
                f"{manifest}: there are no prepared data; run `ketscale prepare {settings.run.workload}` first"
            )
        call += ["--features", str(manifest)]
    path = folder / "train.log"
    path.unlink(missing_ok=True)
    with path.open("xb") as log:
        child = subprocess.Popen(call, stdout=log, stderr=log, start_new_session=True)
        try:
            status = child.wait(limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
            _end(child)
            if isinstance(reason, KeyboardInterrupt):
                raise
            return f"did not finish {settings.protocol.steps} steps in {limit_s:.0f} s"
    checked = check(record, settings, None)
    if status or checked.record is None or checked.state != "completed":
        lines = read_text(path, errors="replace").strip().splitlines()
        return short(checked.why if checked.record else lines[-1] if lines else f"exit status {status}")
    return checked.record.timing.step.median_s or "it has no steady step"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a trial with all of its ranks."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
