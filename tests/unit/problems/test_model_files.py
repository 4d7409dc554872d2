"""A model in a user's own file: how it is built, what cannot be trained, and how it is kept."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ketscale
from ketscale import grid
from ketscale.config import Config, OwnCode, Settings
from ketscale.errors import UserError
from ketscale.layers.dropout import SampleDropout
from ketscale.problems import models
from ketscale.problems.registry import FAMILIES
from tests.own_models import given, write

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
    made = given(folder, {"file": "own.py", "class": "Own"}, simulator="none", qubits=0, layers=0)
    config = Config.of(made, FAMILIES)
    run = next(run for run in config.runs if run.model == "ring")
    return config.settings(grid.Run.of({**vars(run), "seed": seed, **grid.layout(backend)}))


def built(of: Settings) -> nn.Module:
    """The model, for four features and three classes."""
    return models.of_settings(of, None, inputs=4, outputs=3)


def kept(folder: Path, of: Settings, model: nn.Module) -> Path:
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
    first, again, other = (numbers(built(settings(folder, body, seed))) for seed in (3, 3, 4))
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))
    assert states[0] == random.getstate()
    assert states[1] == np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(states[2], torch.get_rng_state())


def test_the_constructor_may_take_the_seed(folder: Path) -> None:
    body = INIT.replace("outputs):", "outputs, seed):") + "self.seed = seed"
    assert built(settings(folder, body, 5)).seed == 5


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torch.manual_seed(1)", "own.py: Own sets torch's seed, so that all seeds of a study would begin alike"),
        ("self.a = nn.LazyLinear(4)", "own.py: Own has parameters without a shape"),
        ("self.requires_grad_(False)", "own.py: Own has no parameter to train"),
        ("self.get_extra_state = dict\n\n    def get_extra_state(self): return {}", "Own keeps other things than tensors"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(folder: Path, line: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        built(settings(folder, INIT + line))


def test_batch_normalisation_is_for_one_rank(folder: Path) -> None:
    body = INIT + "self.norm = nn.BatchNorm1d(inputs)"
    assert built(settings(folder, body))
    with pytest.raises(
        UserError, match=r"own.py: Own has batch normalisation, .* nn.LayerNorm or nn.GroupNorm"
    ):
        built(settings(folder, body, backend="mpi-n1r2t1"))


def test_torchs_dropout_becomes_one_that_does_not_depend_on_ranks(folder: Path) -> None:
    body = INIT + "drop = nn.Dropout(0.3); self.a = nn.Sequential(drop, self.a, drop)"
    model = built(settings(folder, body))
    assert [each.p for each in model.modules() if isinstance(each, SampleDropout)] == [0.3, 0.3]
    assert not [each for each in model.modules() if isinstance(each, nn.Dropout)]


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
    run = kept(folder, of, model)
    with pytest.raises(UserError, match=r"load with trust=True to run it"):
        ketscale.load(run)
    # It is the copy that runs.
    write(folder, {"own.py": "raise RuntimeError('it was run')"})
    loaded = ketscale.load(run, trust=True)
    x = torch.randn(5, 4, dtype=torch.float64)
    assert torch.equal(loaded(x), model.eval()(x))
    assert loaded.module.state_dict().keys() == model.state_dict().keys()
    (run / grid.CODE).write_bytes(OwnCode.read("own.py").packed())
    with pytest.raises(UserError, match=r"code.zip: is not the code that the settings of this run have"):
        ketscale.load(run, trust=True)
    (run / grid.CODE).unlink()
    with pytest.raises(UserError, match=r"code.zip: the code of the model is missing"):
        ketscale.load(run, trust=True)
