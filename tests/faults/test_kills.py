"""Kills at random moments: of ranks, launchers and whole runs, by SIGKILL, SIGTERM and SIGINT, on every backend.

A run is started again until it ends. Then its weights and losses are bitwise those of a run that nothing happened to,
and nothing is left over.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import itertools
import json
import os
import random
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from ketscale import analysis, grid
from ketscale.config import Settings
from ketscale.jobs import prepared
from ketscale.measure.record import check
from ketscale.problems.registry import FAMILIES
from tests.contract.tiny_study import ROOT, Project, environment
from tests.faults import SEED, count

PLACES = ("cpu-n1r1t1", "mpi-n1r2t1", "ddp-cpu-n1r2t1")
KILLS = count(3, len(FAMILIES) * len(PLACES))
# What is left of a run must have ended by itself within this time.
PATIENCE_S = 90.0
MARK = "KETSCALE_FAULT_MARK"
FILES = {grid.RECORD, grid.HISTORY, "model.safetensors"}


class Subject:
    """A long run of a family's tiny study, which is started again and again."""

    def __init__(self, folder: Path, family: str, place: str) -> None:
        self.project = Project(folder / "project", FAMILIES[family].tiny)
        config = analysis.read(self.project.folder / "config.yaml")
        usual = next(run for run in config.runs if run.protocol == "parity")
        self.run = dataclasses.replace(usual, protocol="long", **grid.layout(place))
        self.settings: Settings = config.settings(self.run)
        self.manifest = prepared.manifest(config, Path(config.results), self.run.workload)
        if self.manifest:
            self.project.snakemake(str(self.manifest))
        self.undisturbed, self.duration_s = self._undisturbed()

    def record(self, results: str) -> Path:
        return self.project.folder / results / self.run.path

    def start(self, results: str) -> tuple[subprocess.Popen[bytes], str]:
        """Start it; every process of it has the mark, which is returned too, in its environment."""
        features = [] if self.manifest is None else ["--features", str(self.manifest)]
        mark = uuid.uuid4().hex
        with (self.project.folder / "said").open("wb") as said:
            process = subprocess.Popen(
                ["ketscale", "launch", f"{results}/{self.run.path}", *features],
                cwd=self.project.folder,
                env=environment(ROOT / "workflow") | {MARK: mark},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        return process, mark

    def said(self) -> str:
        return (self.project.folder / "said").read_text(errors="replace")

    def checked(self, results: str) -> Any:
        features = prepared.features_hash(self.manifest and self.project.folder / self.manifest)
        return check(self.record(results), self.settings, features)

    def _undisturbed(self) -> tuple[dict[str, Any], float]:
        begun = time.monotonic()
        process, _ = self.start("undisturbed")
        assert process.wait(600) == 0, self.said()
        return json.loads(self.record("undisturbed").read_text()), time.monotonic() - begun


def of_mark(mark: str) -> list[psutil.Process]:
    """The processes that have this mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def rows(folder: Path) -> list[dict[str, str]]:
    """A run's history without its times."""
    with (folder / grid.HISTORY).open(newline="") as file:
        return [
            {name: value for name, value in row.items() if name != "epoch_s"} for row in csv.DictReader(file)
        ]


def strike(rng: random.Random, process: subprocess.Popen[bytes], mark: str) -> str:
    """Kill one process of a run, or all of them; what was done, in words."""
    how = rng.choices([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], [3, 2, 1])[0]
    if rng.random() < 0.3:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        return f"{how.name} to all"
    victims = of_mark(mark)
    if not victims:
        return "nothing was left"
    victim = rng.choice(victims)
    with contextlib.suppress(psutil.Error):
        name = " ".join(victim.cmdline()[:4])
        victim.send_signal(how)
        return f"{how.name} to {name}"
    return "it had just ended"


def until_it_ends(subject: Subject, results: str, rng: random.Random, kills: int) -> list[str]:
    """Start a run, at most `kills` times with a kill, until it has ended, and compare it; what was done to it."""
    done: list[str] = []
    while True:
        process, mark = subject.start(results)
        struck = len(done) < kills
        if struck:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, subject.duration_s))
            done.append(strike(rng, process, mark))
        told = f"seed {SEED}, {results}, after {done}"
        try:
            status = process.wait(PATIENCE_S + 3 * subject.duration_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{told}: it hangs\n{subject.said()}")
        end = time.monotonic() + PATIENCE_S
        while left := of_mark(mark):
            assert time.monotonic() < end, f"{told}: {left} did not end"
            time.sleep(0.05)
        found = subject.checked(results)
        if found.state != "missing":
            assert found.state == "completed", f"{told}: {found.why}"
            break
        assert struck and status != 0, f"{told}: status {status} without a record\n{subject.said()}"
    for name in ("weights_hash", "losses", "quality"):
        assert found.record[name] == subject.undisturbed[name], f"{told}: another {name}"
    folder = subject.record(results).parent
    assert rows(folder) == rows(subject.record("undisturbed").parent), f"{told}: another history"
    assert found.record["resumed"] <= len(done)
    kept = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {name for name in kept if not name.startswith("lease/")} == FILES, told
    return done


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_run_ends_as_if_nothing_had_happened(family: str, place: str, tmp_path: Path) -> None:
    subject = Subject(tmp_path, family, place)
    rng = random.Random(f"{SEED} {family} {place}")
    done = 0
    for number in itertools.count():
        done += len(until_it_ends(subject, f"killed{number}", rng, KILLS - done))
        if done >= KILLS:
            break
