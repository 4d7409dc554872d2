"""A model in a user's own file: how it is built, what cannot be trained, and how it is kept."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

import ketscale
from ketscale import grid
from ketscale.config import Config, OwnCode, Settings
from ketscale.engines.randomness import keyed
from ketscale.errors import UserError
from ketscale.problems import models
from ketscale.problems.registry import FAMILIES
from tests.own_models import study_of, write

HEAD = """
import random
import numpy as np
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.a, self.b = nn.Linear(inputs, inputs), nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Own(Base):
"""
INIT = "    def __init__(self, inputs, outputs):\n        super().__init__(inputs, outputs)\n        "


class Posed(nn.Module):
    """What `models.saved` takes of a problem."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.arguments = {"inputs": 4, "outputs": 3}
        self.preprocessing = None


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(folder: Path, body: str, seed: int = 0, backend: str = "cpu-n1r1t1") -> Settings:
    """The settings of a run of a classical model with this body, or of Base with this constructor."""
    write(folder, {"own.py": HEAD + body})
    result = study_of(folder, {"file": "own.py", "class": "Own"}, simulator="none", qubits=0, layers=0)
    config = Config.of(result, FAMILIES)
    run = next(run for run in config.runs if run.model == "ring")
    return config.settings(grid.Run.of({**vars(run), "seed": seed, **grid.layout(backend)}))


def built(of: Settings) -> nn.Module:
    """The model, for four features and three classes."""
    return models.of_settings(of, None, inputs=4, outputs=3)


def run_folder(folder: Path, of: Settings, model: nn.Module) -> Path:
    """The folder of a run that has kept its model and its code."""
    run = folder / "kept"
    run.mkdir()
    (run / models.WEIGHTS).write_bytes(models.saved(of, Posed(model)))  # type: ignore[arg-type]
    (run / grid.CODE).write_bytes(OwnCode.read("own.py").packed())
    return run


def numbers(model: nn.Module) -> list[float]:
    """All weights."""
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def test_weights_begin_with_the_runs_seed_whatever_they_are_drawn_with(folder: Path) -> None:
    body = INIT + "self.a.bias.data[:2] = torch.tensor([random.random(), np.random.rand()])"
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002
    first, repeat, other = (numbers(built(settings(folder, body, seed))) for seed in (3, 3, 4))
    assert first == repeat
    assert all(one != two for one, two in zip(first, other, strict=True))
    assert states[0] == random.getstate()
    assert states[1] == np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(states[2], torch.get_rng_state())


def test_the_constructor_may_take_the_seed(folder: Path) -> None:
    body = INIT.replace("outputs):", "outputs, seed):") + "self.seed = seed"
    assert built(settings(folder, body, 5)).seed == 5


def test_a_constructor_that_sets_torchs_seed_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"own\.py: Own"):
        built(settings(folder, INIT + "torch.manual_seed(1)"))


@pytest.mark.parametrize(
    ("arguments", "axes", "message"),
    [
        ("qubits, layers, simulator", {}, ""),
        ("qubits, simulator", {"layers": 0}, ""),
        ("qubits, layers", {"simulator": "none"}, ""),
        ("inputs", {"simulator": "none", "qubits": 0, "layers": 0}, ""),
        ("*, layers, spread=1, **more", {"simulator": "none", "qubits": 0}, ""),
        ("qubits, layers, simulator", {"simulator": "none"}, "needs a simulator"),
        ("qubits, simulator", {}, "layers: 0"),
        ("qubits, layers", {}, "simulator: none"),
        ("inputs", {"simulator": "none", "layers": 0}, "qubits: 0"),
        ("qubits, layers, simulator, width", {}, "'width'"),
    ],
)
def test_a_constructor_gets_what_it_names_and_has_to_name_what_the_study_varies(
    folder: Path, arguments: str, axes: dict[str, Any], message: str
) -> None:
    write(
        folder,
        {
            "own.py": f"{HEAD.rpartition('class')[0]}class Own(nn.Module):\n    def __init__(self, {arguments}):\n        super().__init__()"
        },
    )
    config = Config.of(study_of(folder, {"file": "own.py", "class": "Own"}, **axes), FAMILIES)
    of = next(config.settings(run) for run in config.runs if run.model == "ring")
    simulator = None if of.simulator is None else "fused"
    if not message:
        assert models.of_settings(of, simulator, inputs=4, outputs=3)
    else:
        with pytest.raises(UserError, match=f"own.py: Own.*{message}"):
            models.of_settings(of, simulator, inputs=4, outputs=3)


@pytest.mark.parametrize("more", [{"spred": 1}, {"inputs": 3}])
def test_a_setting_that_the_constructor_does_not_take_is_refused(folder: Path, more: dict[str, int]) -> None:
    of = settings(folder, INIT + "pass")
    with pytest.raises(UserError, match=rf"own.py: Own: .*'{next(iter(more))}'"):
        built(dataclasses.replace(of, model=msgspec.structs.replace(of.model, settings=more)))


@pytest.mark.parametrize("call", ["nn.Dropout(0.3)(x)", "nn.functional.dropout(x, 0.3, self.training, True)"])
def test_a_dropout_of_torchs_depends_on_neither_ranks_nor_interruptions(folder: Path, call: str) -> None:
    model = built(
        settings(
            folder,
            f"    def forward(self, x):\n        x = {call}\n        return {call.replace('x,', 'x * 1,')}",
        )
    )
    samples = torch.arange(40)

    def called(samples: torch.Tensor, step: int) -> torch.Tensor:
        with keyed(0, step, samples):
            return model(torch.ones(len(samples), 4))

    complete = called(samples, 3)
    assert torch.equal(torch.cat([called(part, 3) for part in samples.split(7)]), complete)
    assert not torch.equal(called(samples, 4), complete)
    # The two of a forward have masks of their own, which together keep 0.7 squared.
    assert sorted(set(complete.flatten().tolist())) == pytest.approx([0, 1 / 0.49])
    assert 0.3 < float((complete > 0).double().mean()) < 0.65
    assert not torch.equal(model(torch.ones(40, 4)), model(torch.ones(40, 4)))
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "line",
    [
        # Weights under two names.
        "self.c = self.a",
        "self.b.weight = nn.Parameter(self.a.weight[:3].detach()); self.c = nn.Parameter(self.a.weight.T.detach())",
        "self.c = nn.Parameter(torch.randn(3, dtype=torch.complex64))",
        "self.register_buffer('c', torch.arange(3))",
    ],
)
def test_a_kept_model_comes_back_from_the_copy_of_its_code(folder: Path, line: str) -> None:
    of = settings(folder, INIT + line)
    model = built(of).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    run = run_folder(folder, of, model)
    with pytest.raises(UserError, match=r"load with trust=True"):
        ketscale.load(run)
    # It is the copy that runs.
    write(folder, {"own.py": "raise RuntimeError('it was run')"})
    loaded = ketscale.load(run, trust=True)
    x = torch.randn(5, 4, dtype=torch.float64)
    assert torch.equal(loaded(x), model.eval()(x))
    assert loaded.module.state_dict().keys() == model.state_dict().keys()
    (run / grid.CODE).write_bytes(OwnCode.read("own.py").packed())
    with pytest.raises(UserError, match=r"code.zip: is not the code of this run's settings"):
        ketscale.load(run, trust=True)
    (run / grid.CODE).unlink()
    with pytest.raises(UserError, match=r"code.zip: the code of the model is missing"):
        ketscale.load(run, trust=True)
