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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from ketscale import analysis, grid
from ketscale.config import Settings
from ketscale.jobs import locks, prepared
from ketscale.measure.record import check
from ketscale.problems.registry import FAMILIES
from ketscale.training import checkpoint
from tests.nightly.faults import SEED, count
from tests.tiny_study import ROOT, TINY, Project, environment

PLACES = ("cpu-n1r1t1", "mpi-n1r2t1", "ddp-cpu-n1r2t1")
KILLS = count(3, len(FAMILIES) * len(PLACES))
# What is left of a run must have ended by itself within this time.
PATIENCE_S = 90.0
MARK = "KETSCALE_FAULT_MARK"
LOCKS = (locks.LOCK, locks.HOLDER)
FILES = {grid.RECORD, grid.HISTORY, "model.safetensors"}


class Subject:
    """Long runs of a family's tiny study, which are started again and again: one, or several seeds as a cohort."""

    def __init__(
        self, folder: Path, tiny: Mapping[str, Any], place: str, seeds: Sequence[int] = (0,)
    ) -> None:
        self.project = Project(folder / "project", tiny)
        config = analysis.read(self.project.folder / "config.yaml")
        default = next(run for run in config.runs if run.protocol == "parity")
        self.runs = [
            dataclasses.replace(default, protocol="long", seed=seed, **grid.layout(place)) for seed in seeds
        ]
        self.settings: list[Settings] = [config.settings(run) for run in self.runs]
        self.manifest = prepared.manifest(config, Path(config.results), default.workload)
        if self.manifest:
            self.project.snakemake(str(self.manifest))

    def measure(self) -> None:
        """Train them once, and take the time."""
        self.undisturbed, self.duration_s = self._undisturbed()

    def records(self, results: str) -> list[Path]:
        return [self.project.folder / results / run.path for run in self.runs]

    def start(self, results: str) -> tuple[subprocess.Popen[bytes], str]:
        """Start the first that has no record; every process has the mark, which is returned too, in its environment."""
        left = next(path for path in self.records(results) if not path.exists())
        features = [] if self.manifest is None else ["--features", str(self.manifest)]
        mark = uuid.uuid4().hex
        with (self.project.folder / "said").open("wb") as message:
            process = subprocess.Popen(
                ["ketscale", "launch", str(left.relative_to(self.project.folder)), *features],
                cwd=self.project.folder,
                env=environment(ROOT / "workflow") | self.project.variables | {MARK: mark},
                stdout=message,
                stderr=message,
                start_new_session=True,
            )
        return process, mark

    def said(self) -> str:
        return (self.project.folder / "said").read_text(errors="replace")

    def checked(self, results: str) -> list[Any]:
        features = prepared.features_hash(self.manifest and self.project.folder / self.manifest)
        result = zip(self.records(results), self.settings, strict=True)
        return [check(path, settings, features) for path, settings in result]

    def steps(self, results: str) -> set[int]:
        """The steps at which its runs are, by their records or their checkpoints."""
        return {_step(path) for path in self.records(results)}

    def _undisturbed(self) -> tuple[list[dict[str, Any]], float]:
        start = time.monotonic()
        while not all(path.exists() for path in self.records("undisturbed")):
            process, _ = self.start("undisturbed")
            assert process.wait(600) == 0, self.said()
        records = [json.loads(path.read_text()) for path in self.records("undisturbed")]
        return records, time.monotonic() - start


def _step(path: Path) -> int:
    """The step of a run, whose record is here or is to be."""
    if path.exists():
        return int(json.loads(path.read_text())["timing"]["steps"])
    for file in path.parent.glob("checkpoint/*.pt"):
        key = json.loads(file.read_bytes().partition(b"\n")[0])["key"]
        return int((checkpoint.load(path.parent, key) or {})["step"])
    return 0


def of_mark(mark: str) -> list[psutil.Process]:
    """The processes that have this mark."""
    values = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                values.append(process)
    return values


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
    result: list[str] = []
    parted = False
    while True:
        process, mark = subject.start(results)
        struck = len(result) < kills
        if struck:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, subject.duration_s))
            result.append(strike(rng, process, mark))
        label = f"seed {SEED}, {results}, after {result}"
        try:
            status = process.wait(PATIENCE_S + 3 * subject.duration_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{label}: it hangs\n{subject.said()}")
        end = time.monotonic() + PATIENCE_S
        while left := of_mark(mark):
            assert time.monotonic() < end, f"{label}: {left} did not end"
            time.sleep(0.05)
        parted = parted or len(subject.steps(results)) > 1
        value = subject.checked(results)
        for each in value:
            assert each.state in ("missing", "completed"), f"{label}: {each.why}"
        if all(each.state == "completed" for each in value):
            break
        # A cohort's other runs have jobs of their own, which put their results in place.
        of_cohort = status == 0 and any(each.state == "completed" for each in value)
        assert of_cohort or (struck and status != 0), (
            f"{label}: status {status} without a record\n{subject.said()}"
        )
    places = zip(subject.records(results), subject.records("undisturbed"), strict=True)
    for each, (path, complete), undisturbed in zip(value, places, subject.undisturbed, strict=True):
        record = msgspec.to_builtins(each.record)
        # Members whose checkpoints are of different steps go on in other company than when nothing happens.
        if not parted:
            for name in ("weights_hash", "losses", "quality", "split"):
                assert record[name] == undisturbed[name], f"{label}: another {name}"
            assert rows(path.parent) == rows(complete.parent), f"{label}: another history"
        assert record["losses"] == pytest.approx(undisturbed["losses"], rel=1e-9), label
        assert record["split"] == undisturbed["split"], label
        assert record["resumed"] <= len(result)
        left = {str(file.relative_to(path.parent)) for file in path.parent.rglob("*") if file.is_file()}
        # What a killed writer has left is kept for a day.
        assert {name for name in left if not name.endswith(".tmp")} - {*LOCKS} == FILES, label
    return result


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_run_ends_as_if_nothing_had_happened(family: str, place: str, tmp_path: Path) -> None:
    kill(Subject(tmp_path, TINY[family], place), f"{SEED} {family} {place}")


def test_a_killed_cohort_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    subject = Subject(tmp_path, TINY["images"], PLACES[0], seeds=(0, 1, 2))
    with subject.project.one_cohort([f"results/{run.path}" for run in subject.runs]):
        kill(subject, f"{SEED} cohort")
    assert all(len(record["cohort"]) == 2 for record in subject.undisturbed)


def kill(subject: Subject, seed: str) -> None:
    """Kill its runs KILLS times, and compare what they end as with what they are when nothing happens."""
    subject.measure()
    rng, result = random.Random(seed), 0
    for number in itertools.count():
        result += len(until_it_ends(subject, f"killed{number}", rng, KILLS - result))
        if result >= KILLS:
            break
