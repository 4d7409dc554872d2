"""Probes: the weights that are drawn, the circuit that is found in a model, and what is refused."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from ketscale import analysis
from ketscale.config import Data, Settings
from ketscale.engines.circuits import trainability
from ketscale.engines.circuits.transforms import inputs_only
from ketscale.engines.randomness import uniform
from ketscale.errors import UserError
from ketscale.jobs import first_step, started
from ketscale.measure import record
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.datasets import Dataset
from ketscale.simulators.spanned import noted
from ketscale.training import probe
from ketscale.training.history import History
from tests import ROOT, own_models
from tests import record_maker as maker
from tests import records_factory as factory

MODELS = f"""
{own_models.QNODES}

class Same(nn.Module):
    '''Two circuits, whose weights are the same from every seed.'''

    def __init__(self, inputs, outputs, turn=0.0, qubits=3):
        super().__init__()
        circuit = ketscale.Circuit(qubits)
        for wire in range(qubits):
            circuit = circuit.ry(wire, f"w{{wire}}")
        self.small = ketscale.Layer(ketscale.Circuit(1).ry(0, "x0").ry(0, "w0"))
        self.large = ketscale.Layer(circuit)
        nn.init.constant_(self.large.weight, turn)
        self.head = nn.Linear(1 + qubits, outputs)

    def forward(self, x):
        large = self.large().expand(len(x), -1)
        return self.head(torch.cat([self.small(x[:, :1]), large], 1))


class Other(nn.Module):
    '''Another circuit from every seed.'''

    def __init__(self, inputs, outputs, seed, qubits=2):
        super().__init__()
        axis = "RX" if seed % 2 else "RY"
        self.layer = ketscale.Layer(ketscale.Circuit(2).gate(axis, (0,), "w0").cnot(0, 1))

    def forward(self, x):
        return self.layer().expand(len(x), -1)


class Node(Converted):
    def __init__(self, inputs, outputs, qubits=2):
        super().__init__(qubits, 1, inputs, outputs)


class Undefined(Node):
    def forward(self, x):
        return super().forward(x * float("nan"))


class None_(nn.Linear):
    def __init__(self, inputs, outputs, qubits=2):
        super().__init__(inputs, outputs)
"""
GIVEN: dict[str, Any] = {
    "title": "Probes",
    "workloads": {"iris": {"kind": "sample-table", "table": "iris", "split_seed": 0}},
    "models": {"strong": {"kind": "vqc", "ansatz": "strongly-entangling"}},
    "simulators": {
        "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
        "default.qubit": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
    },
    "protocols": {
        "uniform": {"precision": "fp64", "timed": False, "probe": {"draws": 20, "weights": "uniform"}},
        "initial": {"precision": "fp64", "timed": False, "probe": {"draws": 20, "weights": "initial"}},
        "trained": {"precision": "fp64", "timed": False, "epochs": 2, "learning_rate": 0.01},
    },
    "studies": {
        "asked": {
            "kind": "trainability",
            "question": "Do gradients vanish?",
            "axes": {
                "workload": "iris", "model": "vqc", "qubits": [2, 3], "layers": 2, "batch": 1, "simulator": "fused",
                "backend": "cpu-n1r1t1", "protocol": "uniform", "seed": 0,
            },
        }
    },
}  # fmt: skip


def given(change: Callable[[dict[str, Any]], object] = lambda given: None, **axes: Any) -> dict[str, Any]:
    """The settings, with some axes of the study replaced."""
    found = copy.deepcopy(GIVEN)
    found["studies"]["asked"]["axes"].update(axes)
    change(found)
    return found


def settings_of(change: Callable[[dict[str, Any]], object] = lambda given: None, **axes: Any) -> Settings:
    """The settings of the study's first run."""
    config = analysis.of(given(change, **axes))
    return config.settings(config.runs[0])


def own(folder: Path, name: str, **settings: Any) -> Settings:
    """The circuit of a model in a file, which makes it itself, is probed."""
    (folder / "models.py").write_text(MODELS)
    block = {"file": str(folder / "models.py"), "class": name, **settings}
    return settings_of(
        lambda given: given["models"].update(mine=block), model="mine", layers=0, simulator="none"
    )


def data() -> Data:
    """Four features of twelve samples, of two classes."""
    rows = {name: np.arange(at, at + 4) for at, name in ((0, "train"), (4, "validation"), (8, "test"))}
    return Data(
        Dataset(np.random.default_rng(0).normal(size=(12, 4)), np.arange(12) % 2, ("a", "b"), rows, 4)
    )


def training(settings: Settings, **changes: Any) -> probe.Probe:
    """The probe of a run, with some settings of it replaced."""
    changed = msgspec.structs.replace(settings.protocol.probe, **changes)
    settings = replace(settings, protocol=msgspec.structs.replace(settings.protocol, probe=changed))
    problem = started.build(settings, data(), torch.device("cpu"))
    clock = Clock(torch.device("cpu"), 0, frozenset())
    return probe.Probe(problem, World(), clock, settings, History(None))


def probed(settings: Settings, **changes: Any) -> dict[str, Any]:
    """What it finds."""
    made = training(settings, **changes)
    made.run()
    assert made.trainability is not None
    return dict(made.trainability)


@pytest.mark.parametrize("simulator", ["fused", "default.qubit"])
def test_uniform_weights_are_those_of_the_run_s_seed_beside_a_sample_s_own_inputs(simulator: str) -> None:
    settings = settings_of(model="strong", simulator=simulator)
    made = training(settings)
    made.run()
    model = made.problem.model
    sample = int(probe.SAMPLE.key(0, 0) % 4)
    with noted() as asked:
        made.problem.outputs("train", torch.tensor([sample]))
    turns = 2 * math.pi * uniform(probe.WEIGHTS.key(0, 0), torch.arange(20), model.circuit.weights)
    angles = torch.cat([asked[0].angles.inputs.expand(20, 2), turns], 1)
    circuit = inputs_only(model.circuit)
    found = trainability.gradients(asked[0].simulator, circuit, angles, angles, 2, model.paulis)
    assert made.trainability is not None
    assert made.trainability["square"] == found.square > 0
    assert (made.trainability["weights"], made.trainability["observables"]) == (12, 2)
    assert made.trainability["frame"][1] < 1.5


def test_a_probe_is_the_same_again_and_another_with_another_seed() -> None:
    first = probed(settings_of())
    assert probed(settings_of()) == first and probed(settings_of(seed=1))["square"] != first["square"]


def test_initial_weights_are_those_that_the_model_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each from a model of its own, with the same sample: the head's angles, and weights of N(0, 0.01^2)."""
    seen: list[torch.Tensor] = []
    gradients = trainability.gradients
    monkeypatch.setattr(trainability, "gradients", lambda *all: seen.extend(all[2:4]) or gradients(*all))
    made = training(settings_of(protocol="initial"), draws=40)
    kept = made.problem.model
    made.run()
    assert made.problem.model is kept
    drawn, turned = seen
    assert drawn[:, 2:].std() == pytest.approx(0.01, rel=0.2)
    assert len(drawn[:, 0].unique()) == 40
    assert turned[:, 2:].std() == pytest.approx(2 * math.pi / math.sqrt(12), rel=0.1)
    assert torch.equal(turned[:, :2], drawn[:, :2])


def test_the_largest_circuit_of_a_model_of_one_s_own_is_probed_with_its_own_weights(tmp_path: Path) -> None:
    """<Z> = cos(turn), one state from every seed, which nothing entangles: frame potentials 1, that is N and N (N + 1) / 2."""
    initial = probed(own(tmp_path, "Same", turn=0.5), weights="initial")
    assert (initial["circuits"], initial["qubits"], initial["gates"]) == (2, 2, 2)
    assert (initial["weights"], initial["observables"], initial["pairs"]) == (2, 2, 2)
    assert initial["square"] == pytest.approx(math.sin(0.5) ** 2)
    assert initial["variance"] == pytest.approx(0, abs=1e-20)
    assert initial["frame"] == pytest.approx([4, 10])
    assert initial["entanglement"] == pytest.approx(0, abs=1e-12)
    drawn = probed(own(tmp_path, "Same", turn=0.5), draws=2000)
    assert drawn["square"] == pytest.approx(1 / 2, rel=0.05)
    # One wire has 1/2 and 3/8, and two wires have their squares.
    assert drawn["frame"] == pytest.approx([1, 10 * (3 / 8) ** 2], rel=0.05)


def test_the_circuit_of_a_qnode_is_found(tmp_path: Path) -> None:
    found = probed(own(tmp_path, "Node"), draws=500)
    assert (found["weights"], found["observables"], found["pairs"]) == (2, 2, 3)
    assert 0.1 < found["square"] <= 0.5


def test_angles_that_other_layers_make_are_drawn_where_there_are_no_weights() -> None:
    file = str(ROOT / "workflow" / "models" / "reupload.py")
    block = {"file": file, "class": "Reupload", "control": "mlp", "depth": 2}
    found = probed(settings_of(lambda g: g["models"].update(mine=block), model="mine", layers=0))
    # Two of the 12 angles are the last about Z, behind which Z is measured, and two the first, where |0> stands.
    assert (found["weights"], found["observables"]) == (12, 2)
    assert 0 < found["pairs"] < 24
    assert found["square"] > 0.01


@pytest.mark.parametrize(
    "name, weights, why",
    [
        ("None_", "uniform", "mine evaluates no circuit with a simulator of KetScale"),
        ("Undefined", "initial", "mine gives its circuit angles that are not finite"),
        ("Other", "initial", "mine has another circuit from another seed: give all seeds the same one, or take weights: uniform"),
    ],
)  # fmt: skip
def test_a_model_without_one_circuit_or_with_angles_that_are_no_numbers_is_refused(
    tmp_path: Path, name: str, weights: str, why: str
) -> None:
    with pytest.raises(UserError) as caught:
        probed(own(tmp_path, name), weights=weights)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "asked, why",
    [
        (
            given(lambda g: g["protocols"]["uniform"].update(steps=3)),
            "probe: draws weights instead of training",
        ),
        (given(batch=2), "vqc is probed by one process: give it one rank and batch: 1"),
        (given(lambda g: g["protocols"]["uniform"].update(precision="amp")), "precision: amp needs steps"),
        (given(model="mlp", qubits=0, layers=0, simulator="none"), "weights of a circuit, and mlp has none"),
        (given(protocol="trained"), "trainability needs a protocol with probe, and trained trains"),
    ],
)
def test_a_config_refuses_what_a_probe_does_not_have(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError) as caught:
        analysis.of(asked)
    assert why in str(caught.value)


def test_a_first_step_of_a_probe_finds_its_circuit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "read", lambda settings, manifest: data())
    assert str(first_step.take(own(tmp_path, "Same"), None)).startswith("ended after ")
    with pytest.raises(UserError, match="evaluates no circuit"):
        first_step.take(own(tmp_path, "None_"), None)


def test_a_record_has_what_a_probe_has_found(tmp_path: Path) -> None:
    config = analysis.of(given())
    settings, made = config.settings(config.runs[0]), factory.record(config, config.runs[0])
    found = record.check(factory.write(config, tmp_path, made) / record.RECORD, settings, factory.FEATURES)
    assert found.record and found.record.trainability == maker.typed(made).trainability is not None
