"""Whole runs of shipped studies, seed by seed: a GPU, threads and ranks of one machine, strong and weak.

Each run is started as Snakemake would start it, and its record is kept whole, so that `collect` can take it as any other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ketscale.config import Config, load
from ketscale.grid import BACKENDS, HISTORY, Run
from ketscale.problems.registry import family_of, read_config
from tests import ROOT
from tests.nightly.gpu.measure import Part

STUDIES = ROOT / "workflow" / "studies"
# Data that were prepared where the kit was made, which may take longer than all runs.
PACKED = ROOT / "gpu-kit" / "features"
# A start, and some steps on one core.
SHORTEST_S = 15.0


def measure(part: Part) -> None:
    """How far ranks and threads of this machine go, beside its GPU."""
    train(part, "one-gpu.yaml", names=("strong", "weak", "batch"))


def train(part: Part, file: str, names: tuple[str, ...]) -> None:
    """All runs of these studies of a file of workflow/studies that this machine can do, the first seed of every study
    before the second of any.
    """
    with TemporaryDirectory() as folder:
        where = Path(folder)
        arguments = load(STUDIES / file)
        arguments["studies"] = {name: arguments["studies"][name] for name in names}
        (where / "config.yaml").write_text(json.dumps(arguments))
        config = read_config(where / "config.yaml")
        runs = sorted(
            dict.fromkeys(run for study in config.studies for run in study.runs), key=lambda run: run.seed
        )
        # A family without data has nothing to prepare, and its runs no features.
        prepared: dict[str, list[str] | None] = {}
        for run in runs:
            reason = fault_of(run, config)
            if reason is None and part.left() < SHORTEST_S:
                reason = "the time was over"
            if reason is None and run.workload not in prepared:
                prepared[run.workload] = prepare(part, where, config, run.workload)
            data = prepared.get(run.workload)
            if reason is None and data is not None:
                launch(part, where, config, run, data)
            else:
                part.say(run=run.path, skipped=reason or f"{run.workload} could not be prepared")


def fault_of(run: Run, config: Config) -> str | None:
    """Why this machine cannot do a run; None if it can."""
    backend, cores = BACKENDS[run.backend], len(os.sched_getaffinity(0))
    if backend.device == "gpu" and torch.cuda.device_count() < run.ranks:
        return f"needs {run.ranks} GPU(s)"
    if backend.device == "cpu" and run.ranks * run.threads > cores:
        return f"needs {run.ranks * run.threads} cores, here are {cores}"
    if backend.launcher == "mpirun" and not (importlib.util.find_spec("mpi4py") and shutil.which("mpirun")):
        return "mpi4py and mpirun are not installed here"
    device = config.settings(run).simulator.device
    absent = [name for name in ("pennylane", "scipy", "requests") if not importlib.util.find_spec(name)]
    if device.startswith("default.qubit") and absent:
        return f"{', '.join(absent)} not installed here"
    return None


def prepare(part: Part, where: Path, config: Config, workload: str) -> list[str] | None:
    """The option with a workload's data, if it has any; None if they could not be made."""
    if family_of(config.workloads[workload][1]).prepare is None:
        return []
    manifest = where / config.results / "features" / workload / "features.json"
    if (PACKED / workload).is_dir():
        shutil.copytree(PACKED / workload, manifest.parent)
        return ["--features", str(manifest)]
    try:
        result = command(["ketscale", "prepare", workload], where, part.left())
    except subprocess.TimeoutExpired:
        part.say(prepare=workload, failed="the time was over")
        return None
    if result.returncode:
        part.say(prepare=workload, failed=result.stderr[-500:])
        return None
    return ["--features", str(manifest)]


def launch(part: Part, where: Path, config: Config, run: Run, data: list[str]) -> None:
    """Train a run; its record, or why there is none."""
    path = f"{config.results}/{run.path}"
    try:
        result = command(["ketscale", "launch", path, *data], where, part.left())
    except subprocess.TimeoutExpired:
        part.say(run=run.path, skipped="the time was over")
        return
    record = where / path
    if result.returncode or not record.exists():
        part.say(run=run.path, failed=(result.stdout + result.stderr)[-800:])
        return
    history = record.with_name(HISTORY).read_text()
    part.say(run=run.path, record=json.loads(record.read_text()), history=history)


def command(words: list[str], where: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """A command in the folder of the study."""
    return subprocess.run(words, cwd=where, capture_output=True, text=True, timeout=max(1.0, seconds))
