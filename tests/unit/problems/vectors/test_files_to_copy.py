"""The files in workflow/models, which users copy: each trains from a config, on classes and on numbers, as its paper says."""

from __future__ import annotations

import importlib.util
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch

import ketscale
from ketscale.config import Config, Settings
from ketscale.grid import PREDICTIONS
from ketscale.jobs import outcome, session, started
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.problem import Problem
from ketscale.problems.registry import FAMILIES
from ketscale.training.fit import Fit
from ketscale.training.history import History
from tests import ROOT
from tests.toys import trainer

MODELS = {
    "reupload": {"file": "reupload.py", "class": "Reupload", "control": "mlp"},
    "dressed": {"file": "dressed.py", "class": "Dressed", "control": "mlp", "depth": 3},
    "centric": {"file": "circuit_centric.py", "class": "CircuitCentric", "control": "mlp", "copies": 2},
    "ring": {"file": "kernel.py", "class": "Ring", "control": "svm"},
}
POINTS = {
    "reupload": {"qubits": 2, "layers": 0, "simulator": "fused", "protocol": "epochs", "batch": 16},
    "dressed": {"qubits": 4, "layers": 0, "simulator": "fused", "protocol": "epochs", "batch": 16},
    "centric": {"qubits": 0, "layers": 0, "simulator": "fused", "protocol": "epochs", "batch": 16},
    "ring": {"layers": 1, "simulator": "fused", "protocol": "fit", "batch": 1},
}
# The accuracy of always naming one class is 1/3; the RMSE of the mean is 77.
FEATURES = {"iris": 4, "diabetes": 10}
BOUNDS = {"iris": ("accuracy", 0.85), "diabetes": ("rmse", 63.0)}
# The norm of the features says nothing to it, and Z is at most 1.
BOUNDS_OF_CENTRIC = {"iris": ("accuracy", 0.5), "diabetes": ("rmse", 75.0)}


def settings_of(table: str) -> dict[str, Any]:
    axes = {"workload": "table", "backend": "cpu-n1r1t1", "seed": 0}
    points = [{"model": name, **point} for name, point in POINTS.items()]
    points[-1]["qubits"] = FEATURES[table]
    return {
        "title": "Files to copy",
        "workloads": {"table": {"kind": "sample-table", "table": table, "split_seed": 0}},
        "models": MODELS,
        "simulators": {"fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}},
        "protocols": {
            "epochs": {"precision": "fp64", "timed": False, "epochs": 25, "learning_rate": 0.03},
            "fit": {"precision": "fp64", "timed": False},
        },
        "studies": {"s": {"kind": "accuracy", "question": "Do they learn?", "axes": axes, "points": points}},
    }


@pytest.fixture(params=list(BOUNDS))
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prepared table, in a folder with copies of the files."""
    monkeypatch.chdir(tmp_path)
    for path in (ROOT / "workflow" / "models").glob("*.py"):
        shutil.copy(path, tmp_path)
    config = Config.of(settings_of(request.param), FAMILIES)
    family, (_, workload) = config.family("table"), config.workloads["table"]
    assert family.prepare is not None
    family.prepare(workload, Path("table.json"), None)
    return str(request.param)


def of(table: str, model: str) -> tuple[Settings, Problem]:
    config = Config.of(settings_of(table), FAMILIES)
    settings = config.settings(next(run for run in config.runs if run.model == model))
    return settings, started.build(settings, started.read(settings, Path("table.json")), torch.device("cpu"))


@pytest.mark.parametrize("model", ["reupload", "dressed", "centric"])
def test_a_file_trains_and_learns(table, model):
    settings, problem = of(table, model)
    protocol = settings.protocol
    result = outcome.run(
        trainer(problem, {"precision": "fp64", "epochs": protocol.epochs, "learning_rate": 0.03}, batch=16)
    )
    name, bound = (BOUNDS_OF_CENTRIC if model == "centric" else BOUNDS)[table]
    assert result.quality is not None
    assert (result.quality["test"][name] > bound) == (name == "accuracy"), result.quality["test"]


def test_a_file_is_fitted_as_the_kinds_are(table, one_thread):
    settings, problem = of(table, "ring")
    assert settings.fitted
    result = outcome.run(Fit(problem, World(), Clock(torch.device("cpu"), 0, frozenset()), 1, History(None)))
    assert result.quality is not None and set(result.quality["chosen"]) == {"ridge"}
    name, bound = BOUNDS[table]
    assert (result.quality["test"][name] > bound) == (name == "accuracy"), result.quality["test"]
    if table == "diabetes":
        return  # whose outputs are kept in their unit
    folder = Path("results", settings.run.folder)
    session.train(settings, folder, Path("table.json"))
    saved, loaded = np.load(folder / PREDICTIONS), ketscale.load(folder, trust=True)
    inputs = FAMILIES["rows"].read(settings, Path("table.json")).content.inputs[saved["samples"]]
    outputs = loaded(torch.tensor(inputs, dtype=torch.float64))
    np.testing.assert_allclose(outputs.detach(), saved["outputs"], rtol=0, atol=1e-10)


def test_the_dressed_circuit_is_the_papers():
    dressed = _module("dressed").Dressed(4, None, inputs=5, outputs=3, depth=2).double()
    x = torch.randn(6, 5, dtype=torch.float64)

    @qml.qnode(qml.device("default.qubit", wires=4))
    def circuit(angles, weights):
        for wire in range(4):
            qml.Hadamard(wire)
            qml.RY(angles[:, wire], wires=wire)
        for layer in weights:
            for pair in ([0, 1], [2, 3], [1, 2]):
                qml.CNOT(wires=pair)
            for wire in range(4):
                qml.RY(layer[wire], wires=wire)
        return [qml.expval(qml.PauliZ(wire)) for wire in range(4)]

    angles = torch.tanh(dressed.before(x)) * math.pi / 2
    expected = torch.stack(circuit(angles, dressed.circuit.weight.reshape(2, 4)), dim=-1)
    torch.testing.assert_close(dressed(x), dressed.after(expected), rtol=0, atol=1e-12)


def test_a_circuit_centric_model_embeds_copies_and_entangles_them_strongly():
    model = _module("circuit_centric").CircuitCentric(None, inputs=3, outputs=2, depth=4, copies=2).double()
    x = torch.randn(5, 3, dtype=torch.float64)

    @qml.qnode(qml.device("default.qubit", wires=4))
    def circuit(features, weights):
        for copy in (0, 2):
            qml.AmplitudeEmbedding(features, wires=[copy, copy + 1], normalize=True, pad_with=1 / 4)
        qml.StronglyEntanglingLayers(weights, wires=range(4))
        return qml.expval(qml.PauliZ(0))

    expected = torch.stack([circuit(row, model.weights.reshape(4, 4, 3)) for row in x])
    torch.testing.assert_close(model(x), model.head(expected[:, None]), rtol=0, atol=1e-12)


def test_features_are_uploaded_in_every_layer():
    """By PennyLane: each layer rotates each wire by multiples of the features and offsets, and a CZ follows but the last."""
    model = _module("reupload").Reupload(2, None, inputs=5, outputs=2, depth=3).double()
    x = torch.randn(4, 5, dtype=torch.float64)

    @qml.qnode(qml.device("default.qubit", wires=2))
    def circuit(features):
        padded = np.append(features, 0.0)
        for layer, (scale, offset) in enumerate(zip(model.scale, model.offset, strict=True)):
            angles = padded * scale.detach().numpy() + offset.detach().numpy()
            for wire in range(2):
                qml.Rot(*angles[3 * wire : 3 * wire + 3], wires=wire)
            if layer < 2:
                qml.CZ(wires=[0, 1])
        return [qml.expval(qml.PauliZ(wire)) for wire in range(2)]

    expected = model.head(torch.tensor(np.array([circuit(row) for row in x.numpy()])))
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "workflow" / "models" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
