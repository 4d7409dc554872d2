"""Code of the user's in a study: one step is tried before the first run, and again only where something has changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.study.workflow.project import planned
from tests.tiny_study import Project

RING = """\
from torch import nn

from ketscale import Circuit, Layer


class Ring(nn.Module):
    def __init__(self, qubits, inputs, outputs):
        super().__init__()
        circuit = Circuit(qubits)
        for wire in range(qubits):
            circuit = circuit.ry(wire, f"x{wire}").ry(wire, f"w{wire}").cnot(wire, (wire + 1) % qubits)
        self.layers = nn.Sequential(nn.Linear(inputs, qubits), Layer(circuit), nn.Linear(qubits, outputs))

    def forward(self, x):
        return self.layers(x)
"""
GIVEN: dict[str, Any] = {
    "title": "Own code",
    "results": "out",
    "workloads": {name: {"kind": "rows", "file": "made.npz"} for name in ("mine", "unstudied")},
    "models": {"ring": {"file": "models/ring.py", "class": "Ring", "control": "mlp"}},
    "protocols": {"p": {"precision": "fp64", "epochs": 1, "timed": False, "learning_rate": 0.01}},
    "studies": {
        "s": {
            "kind": "accuracy",
            "question": "Is the circuit worth it?",
            "axes": {
                "workload": "mine", "simulator": "none", "backend": "cpu-n1r1t1", "protocol": "p", "seed": [0, 1, 2],
                "model": "ring", "qubits": [4, 2, 3], "layers": 0, "batch": [16, 8, 4],
            },
        }
    },
}  # fmt: skip


class Own(Project):
    """A project with a model in a file, whose study has 27 runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"axes": GIVEN["studies"]["s"]["axes"], "workloads": GIVEN["workloads"]})
        self.results = folder / GIVEN["results"]
        (folder / "config.yaml").write_text(yaml.safe_dump(GIVEN))
        (folder / "models").mkdir()
        x = np.random.default_rng(0).normal(size=(40, 2))
        np.savez(folder / "made.npz", x=x, y=np.where(x[:, 0] * x[:, 1] > 0, "yes", "no"))
        self.model(RING)

    def model(self, text: str) -> None:
        """Write the model's file."""
        (self.folder / "models" / "ring.py").write_text(text)

    def planned(self, *targets: str) -> dict[str, int]:
        """The jobs of a dry run."""
        return planned(self.snakemake("-n", *targets))

    def target(self, seed: int) -> str:
        """A run's record."""
        return f"out/runs/mine/ring/q2-l0-b8/none/cpu-n1r1t1/p/seed{seed}/metrics.json"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Own:
    """The project with one run, which needed a first step; each test leaves it so."""
    result = Own(tmp_path_factory.mktemp("own") / "project")
    assert result.planned(result.target(0)) == {"prepare": 1, "try": 1, "train": 1}
    result.snakemake(result.target(0))
    return result


def test_a_misspelt_gate_stops_27_runs_before_the_first(tmp_path: Path) -> None:
    project = Own(tmp_path / "project")
    project.model(RING.replace(".cnot(", ".cnott("))
    result = project.snakemake(check=False)
    assert result.returncode == 1
    message = result.stdout + result.stderr
    assert re.search(r"^train +27$", message, re.MULTILINE)
    line = 1 + next(number for number, text in enumerate(RING.splitlines()) if ".cnot(" in text)
    failed = message[message.index("failed: out/tried/mine.log: ") :].splitlines()
    assert failed[0] == (
        f"failed: out/tried/mine.log: models/ring.py, line {line}: AttributeError: 'Circuit' object has no attribute 'cnott' (the first step of "
        "mine/ring/q2-l0-b4/none/cpu-n1r1t1/p/seed0)"
    )
    assert not (project.results / "runs").exists()


def test_one_run_needs_the_step_once(project: Own) -> None:
    assert project.planned(project.target(1)) == {"train": 1}
    # A finished run asks for no note, so that nothing is trained again for the lack of one.
    (project.results / "tried" / "mine.json").unlink()
    assert project.planned(project.target(0)) == {}
    assert project.planned(project.target(0), project.target(1)) == {"try": 1, "train": 1}
    project.run("ketscale", "try", "mine")
    assert project.planned(project.target(1)) == {"train": 1}


def test_other_code_is_tried_again_and_trained_again(project: Own) -> None:
    project.model(RING + "\n# another\n")
    assert project.planned(project.target(0)) == {}
    project.model(RING + "\nx = 1\n")
    assert project.planned(project.target(0)) == {"try": 1, "train": 1}
    project.model(RING)
    assert project.planned(project.target(0)) == {}


def test_a_run_of_no_study_is_trained_without(project: Own) -> None:
    assert project.planned(project.target(7)) == {"train": 1}
    assert project.planned(project.target(7).replace("/mine/", "/unstudied/")) == {"prepare": 1, "train": 1}


def test_no_other_model_waits_for_a_step(project: Own) -> None:
    settings = {**GIVEN, "workloads": {"sample-table": {"table": "iris", "split_seed": 0}}}
    settings["studies"] = {
        "s": {**GIVEN["studies"]["s"], "axes": GIVEN["studies"]["s"]["axes"] | {"workload": "sample-table"}}
    }
    zeros = {"model": "mlp", "qubits": 0, "layers": 0, "batch": 8}
    settings["studies"]["s"]["points"] = [{"qubits": 2, "batch": 8}, zeros]
    (project.folder / "other.yaml").write_text(yaml.safe_dump(settings))
    result = project.snakemake("--configfile", "other.yaml", "-n", "--verbose")
    assert planned(result)["try"] == 1
    waiting = re.findall(r"rule train:\n +input: (.*)\n", result.stdout + result.stderr)
    assert sorted("out/tried/" in inputs for inputs in waiting) == [False] * 3 + [True] * 3
