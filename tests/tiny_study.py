"""The tiny study of a family: every question of the contract in one call of Snakemake."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from ketscale import grid
from ketscale.config import Config, Settings
from ketscale.jobs import cohorts
from ketscale.problems.registry import FAMILIES, NAMES
from tests import ROOT
from tests.process import forks

BIN = Path(sys.executable).parent
PROTOCOLS: dict[str, Any] = {
    "parity": {"precision": "fp64", "timed": False, "steps": 6, "learning_rate": 0.003},
    "timing": {"precision": "fp32", "timed": True, "steps": 12, "sampled_steps": 2, "learning_rate": 0.003},
    # Few steps, in fp64: what rounding changes grows tenfold in twenty steps of an image model.
    "quality": {
        "precision": "fp64", "timed": False, "epochs": 2, "learning_rate": 0.003,
        "early_stopping": {"monitor": "loss", "patience": 3},
    },
    "long": {
        "precision": "fp64", "timed": False, "steps": 1000, "learning_rate": 0.001, "checkpoint_steps": 25,
    },
}  # fmt: skip
# Steps of `long`, for models whose steps take longer: to be stopped in its middle, a run takes a second or more.
STEPS = {"policy": 400, "piecewise_pulse": 300}
LAYOUTS = ["cpu-n1r1t1", "mpi-n1r3t1", "ddp-cpu-n1r2t1"]

# The axes that studies of different kinds vary.
_VARIED = ("simulator", "backend", "seed", "protocol")


def _tiny(name: str) -> dict[str, Any]:
    """The parts of which a family's tiny study is made, from the stored config."""
    complete = yaml.safe_load((ROOT / "tests" / "data" / "configs" / f"{name}.yaml").read_text())
    accuracy, precision = complete["studies"]["accuracy"], complete["protocols"]["timing"]["precision"]
    result = {section: complete[section] for section in ("workloads", "models", "simulators")}
    result["axes"] = {axis: value for axis, value in accuracy["axes"].items() if axis not in _VARIED}
    if len(points := accuracy.get("points", ())) > 1:
        result["control"] = points[1]
    return result | ({"precision": precision} if precision == "fp64" else {})


TINY = {name: _tiny(name) for name in NAMES}


def simulators_of(tiny: Mapping[str, Any]) -> list[str]:
    """The names of its simulators, of which a family without any has `none`."""
    return list(tiny.get("simulators", ())) or ["none"]


def config(tiny: Mapping[str, Any]) -> dict[str, Any]:
    """A whole config from a family's tiny one."""
    simulators = simulators_of(tiny)
    axes = {**tiny["axes"], "simulator": simulators[0], "backend": "cpu-n1r1t1", "seed": 0}
    accuracy: dict[str, Any] = {
        "kind": "accuracy",
        "question": "How good is it?",
        "axes": {**axes, "protocol": "quality", "seed": [0, 1]},
    }
    if "control" in tiny:
        accuracy["points"] = [{}, tiny["control"]]
    studies: dict[str, Any] = {
        "accuracy": accuracy,
        "parity": {
            "kind": "parity",
            "question": "Are the numbers the same everywhere?",
            "axes": {**axes, "protocol": "parity"},
            "points": [{"backend": LAYOUTS}, {"simulator": simulators}],
        },
        "simulators": {
            "kind": "simulator",
            "question": "Which simulator is the fastest?",
            "axes": {**axes, "protocol": "timing", "simulator": simulators},
        },
    }
    return {
        "title": "Tiny",
        "results": "out/tiny",
        "workloads": tiny["workloads"],
        "models": tiny.get("models", {}),
        "simulators": tiny.get("simulators", {}),
        "protocols": protocols(tiny),
        "studies": studies,
    }


def protocols(tiny: Mapping[str, Any]) -> dict[str, Any]:
    """The protocols of a family's tiny study."""
    result = {
        name: {**protocol, "precision": tiny.get("precision", protocol["precision"])}
        for name, protocol in PROTOCOLS.items()
    }
    result["long"]["steps"] = STEPS.get(tiny["axes"]["model"], result["long"]["steps"])
    return result


def environment(package: Path) -> dict[str, str]:
    """Variables with the package of this folder, and no setting of another Snakemake or scheduler."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SNAKEMAKE", "SLURM", "KETSCALE"))
    }
    # Three ranks on two cores, for the numbers alone.
    oversubscribed = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    return {**kept, **oversubscribed, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(package)}


class Project:
    """A folder of its own in which the tiny study of a family runs, from the Snakefile of a checkout."""

    def __init__(self, folder: Path, tiny: Mapping[str, Any], checkout: Path = ROOT) -> None:
        self.folder, self.checkout = folder, checkout
        self.config = config(tiny)
        # Variables of its commands, beside those of `environment`.
        self.variables: dict[str, str] = {}
        self.simulators = simulators_of(tiny)
        self.results = folder / self.config["results"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(self.config))

    def _environment(self) -> dict[str, str]:
        """The variables of commands, which are forked: of a copy of the package, from a server of its own."""
        result = environment(self.checkout / "workflow") | self.variables
        return result | {"PATH": f"{forks.programs(self.checkout / 'workflow')}:{result['PATH']}"}

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command in the folder."""
        result = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert not check or result.returncode == 0, (
            f"{' '.join(command)}\n{result.stdout}{result.stderr}{self._logs()}"
        )
        return result

    def snakemake(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Snakemake from another directory than the Snakefile's."""
        profile = self.checkout / "profiles" / "local"
        command = ["snakemake", "-s", str(self.checkout / "Snakefile"), "--profile", str(profile), *arguments]
        return self.run(*command, check=check)

    def _logs(self) -> str:
        return "\n".join(
            f"--- {log}\n{log.read_text()[-2000:]}"
            for log in self.folder.rglob("*.log")
            if ".snakemake" not in log.parts
        )

    def records(self) -> list[dict[str, Any]]:
        """All records of the study."""
        return [
            json.loads(path.read_text()) for path in sorted((self.results / "runs").rglob("metrics.json"))
        ]

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of a table."""
        with (self.results / "tables" / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def record_path(self, **axes: Any) -> str:
        """A run's record below this folder: the tiny run with other axes."""
        model = self.config["studies"]["parity"]["axes"]["model"]
        paths = sorted((self.results / "runs").glob(f"*/{model}/**/metrics.json"))
        layout = grid.layout(axes.pop("backend", "cpu-n1r1t1"))
        axes = {**asdict(grid.Run.parse(str(paths[0]))), "simulator": self.simulators[0], **layout, **axes}
        return f"{self.config['results']}/{grid.Run.of(axes).path}"

    def settings(self, record: str) -> Settings:
        """All that decides the run with this record."""
        return Config.of(self.config, FAMILIES).settings(grid.Run.parse(record))

    @contextmanager
    def one_cohort(self, records: Sequence[str]) -> Iterator[None]:
        """Inside the block, commands belong to a call that trains the runs with these records together."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KETSCALE_CALL", "a-call")
            patch.setenv(cohorts.VARIABLE, "")
            cohorts.write(self.folder / "call", [[self.settings(record) for record in records]])
            self.variables = {name: os.environ[name] for name in ("KETSCALE_CALL", cohorts.VARIABLE)}
            yield
        self.variables = {}

    def take(self, manifest: Path) -> None:
        """Take data that were prepared elsewhere with the settings of this study's workload."""
        (workload,) = self.config["workloads"]
        shutil.copytree(manifest.parent, self.results / "features" / workload)

    def features(self) -> Path | None:
        """The manifest of the workload's data, where there are any."""
        return next(iter(sorted((self.results / "features").glob("*/features.json"))), None)

    def interrupted_and_resumed(self, record: str) -> dict[str, Any]:
        """The record of a run that was stopped in its middle, and then run again."""
        folder = (self.folder / record).parent
        process = subprocess.Popen(
            ["ketscale", "launch", record],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + 600
            while not list(folder.glob("checkpoint/*.pt")) and process.poll() is None:
                assert time.monotonic() < end, "no checkpoint within ten minutes"
                time.sleep(0.02)
            assert process.poll() is None, f"it ended before it could be stopped: {process.communicate()[1]}"
            process.send_signal(signal.SIGTERM)
            process.wait(600)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        assert not (self.folder / record).exists()
        self.run("ketscale", "launch", record)
        return json.loads((self.folder / record).read_text())


def with_family(folder: Path, files: Mapping[str, str], name: str) -> Path:
    """A copy of the checkout with one more family: its files, and its line in the registry."""
    folder.mkdir(parents=True)
    for part in ("Snakefile", "config.yaml"):
        shutil.copy(ROOT / part, folder / part)
    for part in ("workflow", "profiles", "envs"):
        # Compiled modules stay valid, since the copies have the times of the originals.
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc.*"))
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    registry = folder / "workflow/ketscale/problems/registry.py"
    registry.write_text(registry.read_text().replace("NAMES = (\n", f'NAMES = (\n    "{name}",\n', 1))
    return folder
