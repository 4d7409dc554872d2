"""`ketscale try`: one step of each model on each workload and simulator, before the first long run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from ketscale import cli
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import TRIED
from ketscale.jobs import prepared, tried
from ketscale.problems.registry import FAMILIES
from ketscale.problems.vectors.vqc import VQC
from tests import own_files

SIMULATORS = {
    "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
    "pennylane": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
}


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A study of two models, two simulators and three sizes on three features, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    settings = own_files.study_settings(
        {"kind": "rows", "file": own_files.npz(tmp_path, x=own_files.VECTORS, y=own_files.ANIMALS)}
    )
    study = settings["studies"]["s"]
    axes = study["axes"] | {"batch": [16, 8], "seed": [0, 1, 2]}
    rest = {name: axes.pop(name) for name in ("model", "qubits", "layers", "simulator")}
    points = [rest | {"qubits": [4, 2, 3], "simulator": ["fused", "pennylane"]}]
    points += [{"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"}]
    settings |= {"simulators": SIMULATORS, "studies": {"s": study | {"axes": axes, "points": points}}}
    Path("config.yaml").write_text(yaml.safe_dump(settings))
    return settings


def test_each_model_takes_one_step_with_each_simulator_at_its_smallest(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["try"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("/cpu-n1r1t1/p/seed0: loss ")[0] for line in lines] == [
        "mine/vqc/q2-l1-b8/fused", "mine/vqc/q2-l1-b8/pennylane", "mine/mlp/q0-l0-b8/none",
    ]  # fmt: skip
    config = Config.of(given, FAMILIES)
    note = Path("results", TRIED.format(workload="mine"))
    features = prepared.features_hash(prepared.manifest(config, Path("results"), "mine"))
    assert features is not None
    # One step says how all sizes, batches and seeds go, but nothing of other data.
    assert all(tried.covers(note, config.settings(run), features) for run in config.runs)
    assert not any(tried.covers(note, config.settings(run), "another") for run in config.runs)


def test_one_split_of_the_data_stands_for_all(given: dict[str, Any]) -> None:
    workload = {name: value for name, value in given["workloads"]["mine"].items() if name != "split_seed"}
    given["workloads"]["mine"] = workload | {"split_seeds": [3, 5]}
    Path("config.yaml").write_text(yaml.safe_dump(given))
    assert cli.main(["try"]) == 0
    config = Config.of(given, FAMILIES)
    assert [path.name for path in Path("results", "tried").iterdir()] == ["mine.s3.json"]
    note = Path("results", TRIED.format(workload=config.first_split("mine.s5")))
    features = prepared.features_hash(prepared.manifest(config, Path("results"), "mine.s3"))
    assert len({run.workload for run in config.runs}) == 2
    assert all(tried.covers(note, config.settings(run), features) for run in config.runs)


def test_what_fails_is_said_once_and_nothing_is_noted(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise UserError("ring.py, line 3: no gate is called RXX")

    assert cli.main(["prepare", "mine"]) == 0
    monkeypatch.setattr(VQC, "forward", fails)
    capsys.readouterr()
    assert cli.main(["try", "mine"]) == 2
    message = capsys.readouterr()
    assert message.err.splitlines() == [
        "ketscale: ring.py, line 3: no gate is called RXX (the first step of mine/vqc/q2-l1-b8/fused/cpu-n1r1t1/p/seed0, and of 1 other)"
    ]
    assert message.out.startswith("mine/mlp")
    assert not Path("results/tried").exists()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda logits, _: logits * np.nan, "the outputs of the model are not finite"),
        (lambda logits, training: logits * (np.nan if training else 1), "the loss of the first step is nan"),
        (lambda logits, _: logits[:-1], "the model returns torch.float64 (6, 3), not real numbers (7, 3)"),
        (lambda logits, _: logits.argmax(1), "the model returns torch.int64 (7,), not"),
    ],
    ids=["nan", "nan in training", "rows", "classes"],
)
def test_what_no_loss_can_be_computed_of_is_refused(
    given: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[torch.Tensor, bool], Any],
    message: str,
) -> None:
    forward = VQC.forward
    monkeypatch.setattr(VQC, "vjp", lambda *_: None)
    monkeypatch.setattr(VQC, "forward", lambda self, x: made(forward(self, x), self.training))
    assert cli.main(["try"]) == 2
    assert capsys.readouterr().err.startswith(f"ketscale: {message}")


def test_workloads_have_processes_of_their_own_and_each_is_tried_although_another_fails(
    given: dict[str, Any], tmp_path: Path
) -> None:
    given["workloads"] |= {"other": {"kind": "rows", "file": str(tmp_path / "other.npz")}}
    given["studies"]["s"]["axes"]["workload"] = ["other", "mine"]
    Path("config.yaml").write_text(yaml.safe_dump(given))
    np.savez("other.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    result = subprocess.run([sys.executable, "-m", "ketscale", "try"], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stdout.count("mine/") == 3
    assert "ketscale: workloads.other: class '0' has" in result.stderr
    assert [file.name for file in Path("results/tried").iterdir()] == ["mine.json"]


RING = """\
from torch import nn

from ketscale import Circuit, Layer


class Ring(nn.Module):
    def __init__(self, qubits, inputs, outputs):
        super().__init__()
        circuit = Circuit(qubits).ry(0, "x0").ry(1, "x1").ry(0, "w0").cnot(0, 1)
        self.layers = nn.Sequential(nn.Linear(inputs, 2), Layer(circuit), nn.Linear(qubits, outputs))

    def forward(self, x):
        return self.layers(x)


class Statistics(Ring):
    def __init__(self, qubits, inputs, outputs):
        super().__init__(qubits, inputs, outputs)
        self.layers = nn.Sequential(nn.BatchNorm1d(inputs), *self.layers)
"""


@pytest.fixture
def own(given: dict[str, Any]) -> dict[str, Any]:
    """A study of two models in one file, and of one that is fitted."""
    Path("ring.py").write_text(RING)
    given["models"] = {name.lower(): {"file": "ring.py", "class": name} for name in ("Ring", "Statistics")}
    given["protocols"]["fit"] = {"precision": "fp64", "timed": False}
    axes = {"simulator": "none", "layers": 0}
    given["studies"]["s"]["points"] = [
        {"model": ["ring", "statistics"], "qubits": 2, **axes},
        {"model": "svm", "qubits": 0, "batch": 1, "protocol": "fit", **axes},
    ]
    return written(given)


def written(given: dict[str, Any]) -> dict[str, Any]:
    Path("config.yaml").write_text(yaml.safe_dump(given))
    return given


def test_a_step_shows_whether_a_model_in_a_file_stacks(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["try"]) == 0
    ring, statistics, fitted = capsys.readouterr().out.splitlines()
    assert ring.startswith("mine/ring/q2-l0-b8/none/cpu-n1r1t1/p/seed0: loss ")
    assert ring.endswith("; seeds train together")
    assert "; seeds train alone (a step changes layers.0.running_mean, " in statistics
    assert fitted.startswith("mine/svm/q0-l0-b1/none/cpu-n1r1t1/fit/seed0: ended after ")
    config = Config.of(own, FAMILIES)
    single = {
        run.model: tried.is_single(Path("results", run.folder), config.settings(run).content)
        for run in config.runs
    }
    assert single == {"ring": False, "statistics": True, "svm": False}


def test_several_ranks_share_no_batch_whose_samples_depend_on_each_other(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = (
        "class Statistics(Ring):\n    def forward(self, x):\n"
        "        return super().forward(x - x.mean(0) if self.training else x)\n"
    )
    Path("ring.py").write_text(RING[: RING.index("class Statistics")] + mixed)
    own["studies"]["s"]["points"] = own["studies"]["s"]["points"][:1]
    written(own)
    assert cli.main(["try"]) == 0
    before = Config.of(own, FAMILIES)
    note, features = Path("results/tried/mine.json"), json.loads(Path("results/tried/mine.json").read_text())["features"]  # fmt: skip
    # A larger batch, which a step of one rank says nothing of.
    several = {**own["studies"]["s"]["axes"], "backend": "mpi-n1r2t1", "batch": 16}
    own["studies"]["more"] = {**own["studies"]["s"], "axes": several}
    written(own)
    after = Config.of(own, FAMILIES)
    assert {run for run in after.runs if tried.covers(note, after.settings(run), features)} == set(
        before.runs
    )
    assert cli.main(["try"]) == 2
    message = capsys.readouterr()
    assert "mine/ring/q2-l0-b16/none/mpi-n1r2t1/p/seed0: loss " in message.out
    assert message.err.startswith("ketscale: ring.py: Statistics trains a sample by the others in its batch")
    assert message.err.endswith("(the first step of mine/statistics/q2-l0-b16/none/mpi-n1r2t1/p/seed0)\n")


def test_a_model_in_a_file_is_tried_in_each_precision(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """One that makes a tensor in single precision would fail in every run of a study of parity."""
    single = "class Statistics(Ring):\n    def forward(self, x):\n        return super().forward(x) @ torch.eye(3)\n"
    Path("ring.py").write_text(f"import torch\n{RING[: RING.index('class Statistics')]}{single}")
    axes, protocols = own["studies"]["s"]["axes"], own["protocols"]
    protocols["single"] = {**protocols[axes["protocol"]], "precision": "fp32"}
    axes["protocol"] = [axes["protocol"], "single"]
    own["studies"]["s"]["points"] = own["studies"]["s"]["points"][:1]
    written(own)
    assert cli.main(["try"]) == 2
    message = capsys.readouterr()
    assert [line.partition("/seed0: ")[0].rpartition("/")[2] for line in message.out.splitlines()] == [
        "p",
        "single",
        "single",
    ]
    assert message.err.startswith("ketscale: ring.py, line ")
    assert message.err.endswith("(the first step of mine/statistics/q2-l0-b8/none/cpu-n1r1t1/p/seed0)\n")


MEMORY = """
import torch
from torch import nn

import ketscale


class Ring(nn.Module):
    def __init__(self, inputs, outputs, seed):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
        {made}

    def forward(self, x):
        if self.training:
            {trained}
        return {returned}
"""
SUM = "self.layer(x - self.mean)"
MEANS = "self.register_buffer('mean', torch.zeros(inputs))"
LATER = "self.mean = 0.9 * self.mean + x.detach().mean(0); return self.layer(x)"


@pytest.mark.parametrize(
    ("made", "trained", "returned", "ranks", "message"),
    [
        # A stack would lose the means, which no loss of the first step depends on.
        (MEANS, LATER, SUM, 1, "; seeds train alone (a step changes mean, whose first values a stack would keep"),
        (MEANS, LATER, SUM, 2, "ring.py: Ring trains a sample by the others in its batch"),
        ("self.n = 0", "self.n += 1", "self.layer(x) / (1 + self.n)", 1, "ring.py: Ring makes something else of"),
        ("nn.utils.spectral_norm(self.layer)", "pass", "self.layer(x)", 2, "/mpi-n1r2t1/p/seed0: loss"),
        ("nn.utils.spectral_norm(self.layer)", "pass", "self.layer(x)", 1, "; seeds train alone (a step changes "),
        ("pass", "return self.layer(x)", "self.layer(x - x.mean(0))", 1, "ring.py: Ring evaluates a sample by the others"),
        ("self.norm = nn.BatchNorm1d(inputs)", "pass", "self.layer(self.norm(x))", 1, "; seeds train alone (a step changes norm."),
        ("self.norm = nn.BatchNorm1d(inputs)", "pass", "self.layer(self.norm(x))", 2, "ring.py: Ring trains a sample by the others"),
        ("pass", "x = nn.functional.dropout(x, 0.3)", "self.layer(x)", 2, "/mpi-n1r2t1/p/seed0: loss"),
        ("pass", "x = nn.functional.dropout(x, 0.3)", "self.layer(x)", 1, "; seeds train together"),
        # That of seed 3 is below 0.1, those of seeds 0 to 2 are not.
        (
            "torch.manual_seed(seed); self.turned = float(torch.rand(())) < 0.1; torch.manual_seed(seed)",
            "pass", "-self.layer(x) if self.turned else self.layer(x)", 1,
            "; seeds train alone (torch.func.vmap gives it other numbers",
        ),
        ("nn.init.ones_(self.layer.bias)", "pass", "self.layer(x)", 1, "; seeds train together"),
    ],
)  # fmt: skip
def test_what_a_model_remembers_is_in_its_checkpoint_and_no_sample_sees_others(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str], made: str, trained: str, returned: str, ranks: int, message: str
) -> None:  # fmt: skip
    Path("ring.py").write_text(MEMORY.format(made=made, trained=trained, returned=returned))
    own["models"] = {"ring": {"file": "ring.py", "class": "Ring"}}
    own["studies"]["s"]["axes"]["backend"] = f"mpi-n1r{ranks}t1"
    own["studies"]["s"]["points"] = [{"model": "ring", "qubits": 0, "layers": 0, "simulator": "none"}]
    written(own)
    mentioned = "ring.py" in message
    assert cli.main(["try"]) == 2 * mentioned
    printed = capsys.readouterr()
    assert message in printed.out if not mentioned else printed.err.startswith(f"ketscale: {message}")


# Statements at the head of the file, in the constructor and in forward.
KEEPER = """
import dataclasses, os, random
from pathlib import Path

import numpy as np
import torch
from torch import nn

{head}

class Ring(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
        {made}

    def forward(self, x):
        {called}
        return self.layer(x)
"""


def single_study(own: dict[str, Any], head: str, made: str, called: str, **settings: Any) -> None:
    """A study of one model, of these statements."""
    Path("ring.py").write_text(KEEPER.format(head=head, made=made, called=called))
    own["models"] = {"ring": {"file": "ring.py", "class": "Ring", **settings}}
    own["studies"]["s"]["points"] = [{"model": "ring", "qubits": 0, "layers": 0, "simulator": "none"}]
    written(own)


@pytest.mark.parametrize(
    ("head", "made", "called", "message"),
    [
        ("", "self.register_buffer('m', torch.zeros(1))", "self.m += not self.training", "changes m in evaluation"),
        ("", "pass", "x = 2 * x if random.random() < 1e-9 else x", "draws random numbers"),
        ("", "pass", "x = x + torch.randn_like(x) if self.training else x", "makes something else of the same samples"),
    ],
)  # fmt: skip
def test_what_changes_from_call_to_call_is_refused(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str], head: str, made: str, called: str, message: str
) -> None:
    single_study(own, head, made, called)
    assert cli.main(["try"]) == 2
    assert capsys.readouterr().err.startswith(f"ketscale: ring.py: Ring {message}")


@pytest.mark.parametrize(
    ("head", "made", "called"),
    [
        ("", "self.mask = None", "self.mask = torch.ones(7) if self.mask is None else self.mask"),
        ("", "self.masks = {}", "self.masks.setdefault(x.shape[1], torch.ones(7))"),
        ("", "self.shown = []", "self.shown = [x.detach(), 0.5]"),
        ("", "self.layer = nn.Sequential(nn.BatchNorm1d(inputs), self.layer)", "pass"),
        ("", "self.gap = torch.full((3,), torch.nan), float('nan'), np.float32('nan')", "pass"),
        ("", "self.shared = [self.layer.weight, self.layer]; self.layer.above = [self]", "pass"),
    ],
)
def test_what_is_made_once_or_kept_of_the_last_samples_may_stay(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str], head: str, made: str, called: str
) -> None:
    single_study(own, head, made, called)
    assert cli.main(["try"]) == 0
    assert "mine/ring/q0-l0-b8/none/cpu-n1r1t1/p/seed0: loss " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("head", "made", "called", "names"),
    [
        ("", "self.scale = float(Path('scale.txt').read_text())", "pass", ["scale.txt"]),
        ("", "self.mask = np.load('folder/my mask.npy')", "pass", ["'folder/my mask.npy'"]),
        ("", "torch.load('weights.pt')", "pass", ["weights.pt"]),
        ("import sys; sys.path.append('lib'); import deep", "pass", "__import__('importlib').import_module('deeper')", ["lib/deep.py", "lib/deeper.py"]),
        ("", "pass", "open('scale.txt').close()", ["scale.txt"]),
    ],
)  # fmt: skip
def test_what_a_model_reads_is_in_its_settings(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    head: str, made: str, called: str, names: list[str],
) -> None:  # fmt: skip
    for folder in ("folder", "lib"):
        Path(folder).mkdir()
    for name in ("deep", "deeper"):
        Path(f"lib/{name}.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("scale.txt").write_text("2")
    np.save("folder/my mask.npy", np.ones(3))
    torch.save(torch.ones(3), "weights.pt")
    single_study(own, head, made, called)
    assert cli.main(["try"]) == 2
    error, line = capsys.readouterr().err, f"reads: [{', '.join(names)}]".replace("'", '"')
    assert error.startswith("ketscale: ring.py: Ring reads ")
    assert f"add `{line}` to models.ring (the first step" in error
    # With the line that was asked for it is tried.
    for name in ("deep", "deeper"):
        sys.modules.pop(name, None)
    single_study(own, head, made, called, **yaml.safe_load(line))
    assert cli.main(["try"]) == 0


@pytest.mark.parametrize(
    "made",
    [
        "open('/proc/self/stat').close(); open(np.__file__).close()",
        "import email.mime.audio, wave",
    ],
)
def test_what_is_pythons_or_the_models_own_needs_no_line(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str], made: str
) -> None:
    single_study(own, "", made, "pass")
    assert cli.main(["try"]) == 0, capsys.readouterr().err


NEAREST = """
import torch

import ketscale


class Ring(ketscale.Fitted):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.register_buffer("means", torch.zeros(1))

    def fit(self, train, validation):
        x, classes = train
        self.{name} = torch.stack([x[classes == each].mean(0) for each in range(3)])

    def forward(self, x):
        return -torch.cdist(x, self.{name})
"""


@pytest.mark.parametrize(
    ("name", "message"), [("means", ""), ("learned", "ketscale: ring.py, line 17: AttributeError: ")]
)
def test_what_a_fitted_model_learns_can_be_loaded(
    own: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    Path("ring.py").write_text(NEAREST.format(name=name))
    own["models"] = {"ring": {"file": "ring.py", "class": "Ring"}}
    own["studies"]["s"]["points"][1] |= {"model": "ring"}
    del own["studies"]["s"]["points"][0]
    written(own)
    cli.main(["try"])
    assert capsys.readouterr().err.startswith(message) if message else not capsys.readouterr().err
