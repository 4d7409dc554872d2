"""Models of a user's own, in files beside the config: a study of them, what it leaves, and who runs their code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import ketscale
from ketscale import cli, grid
from ketscale.config import OwnCode, Settings
from ketscale.grid import Run
from ketscale.jobs import started
from ketscale.problems.registry import FAMILIES
from tests import own_files, own_models
from tests.tiny_study import Project

pytestmark = pytest.mark.slow

# It says that it runs, and once there is such a file it does so in vain.
SPIED = """
import os

print("it runs")

if os.path.exists("in-vain"):
    raise RuntimeError("it was run")
"""
FILES = {
    "models/ring.py": own_models.RING,
    "models/parts.py": SPIED + own_models.PARTS,
    "models/qnodes.py": SPIED + own_models.QNODES,
}
QNODES = {
    name.lower(): {"file": "models/qnodes.py", "class": name, "control": "mlp"}
    for name in ("Layered", "Converted")
}
IMPORT = ("init", "prepare", "try", "train", "launch")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished study of three models: one of a simulator that the run names, and two of QNodes."""
    folder = tmp_path_factory.mktemp("own") / "project"
    own_models.write(folder, FILES)
    own_files.npz(folder, x=own_files.VECTORS, y=own_files.ANIMALS)
    tiny = {
        "workloads": {"mine": {"kind": "rows", "file": "mine.npz"}},
        "models": {"ring": own_models.BLOCK, **QNODES},
        "simulators": own_models.SIMULATORS,
        "axes": {"workload": "mine", "model": "ring", "qubits": 2, "layers": 1, "batch": 8},
        "control": {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"},
    }
    result = Project(folder, tiny)
    # Few runs: what they show of circuits, other tests show too.
    parity, accuracy = (result.config["studies"][name] for name in ("parity", "accuracy"))
    result.config["studies"] = {"parity": parity, "accuracy": accuracy}
    parity["points"][0]["backend"] = ["cpu-n1r1t1", "ddp-cpu-n1r2t1"]
    parity["points"].append(
        {"model": list(QNODES), "simulator": "none", "backend": ["cpu-n1r1t1", "mpi-n1r3t1"]}
    )
    accuracy["points"].append({"model": "converted", "simulator": "none"})
    (folder / "config.yaml").write_text(yaml.safe_dump(result.config))
    result.snakemake()
    return result


def folders(project: Project, **axes: Any) -> list[Path]:
    """The folders of the runs with these axes."""
    values = [Run.parse(str(path)) for path in (project.results / "runs").rglob(grid.RECORD)]
    return [
        project.results / run.folder
        for run in sorted(values)
        if all(getattr(run, name) == value for name, value in axes.items())
    ]


def test_every_run_is_finished_and_the_report_is_made(project: Project) -> None:
    assert {record["run"]["model"] for record in project.records()} == {"ring", "layered", "converted", "mlp"}
    assert all(record["status"] == "completed" for record in project.records())
    assert (project.results / "report.html").stat().st_size > 10_000
    assert {row["status"] for row in project.table("runs")} == {"completed"}
    assert {row["model"] for row in project.table("quality")} >= {"ring", "converted", "mlp"}


def test_numbers_are_the_same_on_all_ranks_and_under_all_simulators(project: Project) -> None:
    rows = [row for row in project.table("speed") if row["kind"] == "parity" and "fp64" in row["why"]]
    compared = {(row["model"], row["simulator"], row["layout"].rpartition("-")[0]) for row in rows}
    assert {row["verdict"] for row in rows} == {"same"}
    assert compared >= {
        ("ring", "fused", "ddp-cpu"),
        ("layered", "none", "mpi"),
        ("converted", "none", "mpi"),
    }
    assert any(row["reference"].startswith("default.qubit") for row in rows)


def test_seeds_train_together_where_the_first_step_has_shown_that_they_can(project: Project) -> None:
    seeds = [record for record in project.records() if record["run"]["protocol"] == "quality"]
    assert all(record["cohort"] for record in seeds if record["run"]["model"] in ("ring", "converted"))


def test_every_run_keeps_a_copy_of_its_code_and_its_record_vouches_for_it(project: Project) -> None:
    for record in project.records():
        saved = record["files"].get(grid.CODE)
        assert (saved is not None) == (record["run"]["model"] != "mlp")
    for model, files in (("ring", ["ring.py", "parts.py"]), ("layered", ["qnodes.py"])):
        code = OwnCode.unpacked(folders(project, model=model)[0] / grid.CODE, f"models/{files[0]}")
        assert list(code.sources) == files
        assert all(code.sources[name].decode() == FILES[f"models/{name}"] for name in files)


def test_a_loaded_model_gives_the_predictions_that_its_run_has_kept(project: Project) -> None:
    folder = folders(project, model="ring", protocol="quality")[0]
    saved, loaded = np.load(folder / grid.PREDICTIONS), ketscale.load(folder, trust=True)
    record = json.loads((folder / grid.RECORD).read_text())
    data = started.read(Settings.of(record["config"], FAMILIES, "its settings"), project.features())
    x = torch.from_numpy(np.array(data.content.inputs)[saved["samples"]]).double()
    with torch.no_grad():
        outputs = loaded(x)
    assert torch.allclose(outputs, torch.from_numpy(saved["outputs"]), rtol=1e-9)


@pytest.fixture
def spied(project: Project) -> Iterator[Project]:
    """The project whose own code raises when it is run."""
    (project.folder / "in-vain").touch()
    yield project
    (project.folder / "in-vain").unlink()


def test_nobody_but_what_trains_runs_the_code(spied: Project) -> None:
    results, record = spied.config["results"], spied.record_path(model="ring", protocol="quality")
    shutil.copytree(spied.folder / results, spied.folder / "other")
    others = {
        "bench": ["--help"],
        "compare": [results, "other"],
        "doctor": [],
        "export": [results, "--to", "tensorboard", "--out", "board"],
        "fetch": ["mine"],
        "plan": [],
        "recommend": [record, "--minutes", "0"],
        "report": [],
        "schema": [],
        "status": [],
    }
    commands = next(action for action in cli._parser()._actions if action.choices).choices
    assert set(commands) == {*others, *IMPORT}, "say of a new command whether it runs the code"
    for command, arguments in others.items():
        done = spied.run("ketscale", command, *arguments, check=False)
        message = done.stdout + done.stderr
        assert "it was run" not in message, message
        # Nothing is fetched here, TensorBoard is an extra, and no trial has time.
        assert done.returncode == 0 or command in ("fetch", "bench", "export", "recommend"), message
    done = spied.snakemake("--dry-run")
    assert "Nothing to be done" in done.stdout + done.stderr or "it was run" not in done.stdout + done.stderr
    for command in ("try", "train", "launch"):
        arguments = {"try": ["mine"]}.get(command, [record.replace("seed0", "seed9")])
        done = spied.run("ketscale", command, *arguments, check=False)
        assert done.returncode == 2, done.stderr
        assert "models/parts.py, line 7: RuntimeError: it was run" in done.stderr


def test_a_change_of_a_file_makes_its_runs_stale_and_only_its(project: Project) -> None:
    file = project.folder / "models" / "parts.py"
    file.write_text(FILES["models/parts.py"] + "x = 1\n")
    try:
        text = project.run("ketscale", "status", "--failed").stdout.splitlines()
    finally:
        file.write_text(FILES["models/parts.py"])
    # Three lines for each: its record, why, and the command.
    states = {(Run.parse(run).model, why.split()[0]) for run, why in zip(text[::3], text[1::3], strict=True)}
    assert states == {("ring", "stale:")}
