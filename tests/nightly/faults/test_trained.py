"""Configs with one wrong value that were not refused, as far as a study goes: a record, or one error in words."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ketscale import analysis
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems.registry import FAMILIES
from tests.nightly.faults import SEED, count
from tests.property.configs import JUNK, at, places, replaced
from tests.tiny_study import ROOT, TINY, environment
from tests.tiny_study import config as tiny_config

COUNT = count(4, len(FAMILIES))
# A changed setting may well be more work than a test has time for. Then Ctrl-C must end it.
LONGEST_S, PATIENCE_S = 45, 90
BLOCKS = ("workloads", "models", "simulators", "protocols")


def accepted(family: str) -> Iterator[tuple[int, str, dict[str, Any], Config, Run]]:
    """Damaged configs that are not refused, each with a run that is not what it was; without end."""
    complete = tiny_config(TINY[family])
    sound = analysis.of(complete)
    for number in itertools.count():
        rng = random.Random(f"{SEED} {family} trained {number}")
        place = rng.choice([place for place in places(complete) if place[0] in BLOCKS])
        value = at(complete, place)
        twice = isinstance(value, int | float) and not isinstance(value, bool)
        damaged = replaced(
            complete, place, rng.choice([*JUNK, *([2 * value, 1000 * value, value / 7] * 5 if twice else [])])
        )
        change = f"{place} = {at(damaged, place)!r:.300}"
        try:
            config = analysis.of(yaml.safe_load(yaml.safe_dump(damaged)))
        except UserError:
            continue
        before = {sound.settings(run).text for run in sound.runs}
        runs = [run for run in config.runs if config.settings(run).text not in before]
        if runs:
            yield number, change, damaged, config, rng.choice(runs)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_not_refused_trains_or_says_why_not(family: str, tmp_path: Path) -> None:
    for number, change, damaged, config, run in itertools.islice(accepted(family), COUNT):
        label = f"seed {SEED}, {family}, number {number}: {change}, {run.path}"
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump(damaged))
        status, message = study(folder, f"{config.results}/{run.path}")
        record = folder / config.results / run.path
        assert record.exists() == (status == 0), f"{label}\n{message}"
        note = next((line for line in reversed(message.splitlines()) if line.startswith("ketscale: ")), "")
        assert status == 0 or status == 130 or note, f"{label}\n{message}"
        # torchrun shows a traceback of its own when it is interrupted.
        assert status == 130 or "Traceback" not in message, f"{label}\n{message}"


def study(folder: Path, target: str) -> tuple[int, str]:
    """Ask Snakemake for one record in a folder; its status, 130 after Ctrl-C, and what was said."""
    with (folder / "said").open("wb") as message:
        process = subprocess.Popen(
            [
                "snakemake",
                "-s",
                str(ROOT / "Snakefile"),
                "--profile",
                str(ROOT / "profiles" / "local"),
                target,
            ],
            cwd=folder,
            env=environment(ROOT / "workflow"),
            stdout=message,
            stderr=message,
            start_new_session=True,
        )
    try:
        status = process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        status = process.wait(PATIENCE_S) and 130
    return status, (folder / "said").read_text(errors="replace")
