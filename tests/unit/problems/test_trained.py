"""A loaded model takes samples as they were brought, wherever its file is, and goes on as any torch module does."""

from __future__ import annotations

import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import ketscale
from ketscale.errors import UserError
from ketscale.problems import models
from ketscale.problems.columns import Column
from ketscale.problems.library import Trained
from ketscale.problems.problem import Problem
from tests.own_files import ANIMALS, COLOUR, NETWORK, SIGNALS, VECTORS, config, npz, pictures

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": np.where(np.arange(40) % 9, VECTORS[:, 0], np.nan),
        "colour": np.where(np.arange(40) % 7, RNG.choice(["red", "green", "blue"], 40), None),
        "day": pd.date_range("2024-01-01", periods=40)[RNG.permutation(40)].strftime("%Y-%m-%d"),
        "well": RNG.choice([True, False], 40),
        "note": [f"n{i}" for i in range(40)],
        "weight": VECTORS[:, 1],
        "animal": ANIMALS,
    }
)
STEPS = {"age": "median", "colour": ["most-frequent", "one-hot"], "day": "date"}
BLOCK = {"kind": "table", "target": "animal", "columns": STEPS, "ignore": ["note"]}


def home(tmp_path: Path, block: dict[str, Any], **load: Any) -> tuple[Trained, Problem]:
    """An untrained model of a workload, loaded where nothing else is, and its problem."""
    result = config(block)
    settings = result.settings(result.runs[0])
    family, manifest = settings.family, tmp_path / "features.json"
    family.prepare(settings.workload, manifest, None)
    torch.manual_seed(0)
    problem = family.build(settings, family.read(settings, manifest), torch.device("cpu"))
    problem = problem.convert(torch.device("cpu"), torch.float64)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / models.WEIGHTS).write_bytes(models.saved(settings, problem))
    return ketscale.load(tmp_path / "home", **load), problem


def expected(problem: Problem) -> np.ndarray:
    """The outputs of all samples, in the order of the workload."""
    outputs = {name: problem.outputs(name, torch.arange(count)) for name, count in problem.splits.items()}
    rows = torch.cat([problem.get_buffer(f"rows_{name}") for name in outputs])
    return torch.cat([*outputs.values()])[rows.argsort()].numpy()


def csv(tmp_path: Path) -> str:
    TABLE.to_csv(tmp_path / "mine.csv", index=False)
    return str(tmp_path / "mine.csv")


def test_a_table_is_predicted_as_it_was_brought(tmp_path: Path) -> None:
    model, problem = home(tmp_path, {**BLOCK, "file": csv(tmp_path)})
    outputs = expected(problem)
    assert model.classes == ("cat", "dog", "eel") and model.metric == "accuracy"
    # As it was written, as pandas reads it, and with typed dates, gaps and columns in another order.
    typed = TABLE.assign(day=pd.to_datetime(TABLE["day"]))[TABLE.columns[::-1]]
    for table in (TABLE, pd.read_csv(tmp_path / "mine.csv"), typed, TABLE.drop(columns=["animal", "note"])):
        shares = model.predict_proba(table)
        np.testing.assert_allclose(shares, torch.from_numpy(outputs).softmax(1), atol=1e-12)
        assert (model.predict(table) == np.array(model.classes)[outputs.argmax(1)]).all()
    new = TABLE.assign(colour="violet").head(3)
    assert model.predict(new).shape == (3,)
    for bad, message in (
        (TABLE.drop(columns="age"), "no column age"),
        (TABLE.assign(well=["maybe"] * 40), "column well"),
        (TABLE.to_numpy(), "DataFrame"),
    ):
        with pytest.raises(UserError, match=message):
            model.predict(bad)


def test_what_is_fitted_is_fitted_to_the_training_part(tmp_path: Path) -> None:
    parts = np.repeat(["train", "test"], 20)
    extreme = TABLE.assign(
        age=np.where(parts == "train", TABLE["age"], 1e6),
        colour=np.where(parts == "train", "red", "blue"),
        part=parts,
    )
    extreme.to_csv(tmp_path / "mine.csv", index=False)
    block = {**BLOCK, "file": str(tmp_path / "mine.csv"), "split_column": "part"}
    data = config(block).workloads["mine"][1].load(None)
    median = float(TABLE["age"][:20].median())
    assert data.columns[:2] == (Column("age", gap=median), Column("colour", categories=("red",), gap="red"))
    assert data.values[20:, 1].tolist() == [0] * 20


def test_numbers_come_in_their_units(tmp_path: Path) -> None:
    block = {**BLOCK, "file": csv(tmp_path), "target": ["weight", "age"], "task": "regression"}
    steps = {name: step for name, step in STEPS.items() if name != "age"}
    TABLE.fillna({"age": 3.0}).to_csv(tmp_path / "mine.csv", index=False)
    block["ignore"] = ["note", "animal"]
    model, problem = home(tmp_path, {**block, "columns": steps})
    predicted = model.predict(TABLE)
    saved = problem.predictions("test", problem.outputs("test", torch.arange(problem.splits["test"])))
    np.testing.assert_allclose(predicted[saved["samples"]], saved["outputs"], rtol=1e-9)
    assert model.classes == ()
    with pytest.raises(UserError, match="regression"):
        model.predict_proba(TABLE)


def test_arrays_and_trials_are_predicted_as_they_were_brought(tmp_path: Path) -> None:
    model, problem = home(tmp_path, {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS)})
    names = np.array(model.classes)
    assert (model.predict(VECTORS) == names[expected(problem).argmax(1)]).all()
    assert (model.predict(pd.DataFrame(VECTORS)) == model.predict(VECTORS)).all()
    with pytest.raises(UserError, match=r"not \(samples, 7\)"):
        model.predict(VECTORS[:, 1:])
    series = {"kind": "series", "split": "trials", "standardise": True}
    (tmp_path / "b").mkdir()
    model, problem = home(tmp_path / "b", {**series, "file": npz(tmp_path, x=5 + SIGNALS, y=ANIMALS)})
    assert (model.predict(5 + SIGNALS) == names[expected(problem).argmax(1)]).all()
    with pytest.raises(UserError, match=r"not \(trials, 3, 12\)"):
        model.predict(SIGNALS[:, 0])


def test_whole_numbers_are_classes_as_such_and_votes_no_probabilities(tmp_path: Path) -> None:
    model, problem = home(
        tmp_path, {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=np.arange(40) % 3 + 5)}
    )
    assert model.predict(VECTORS).tolist() == (5 + expected(problem).argmax(1)).tolist()
    assert model.classes == ("5", "6", "7")

    class Votes(ketscale.Fitted):
        def fit(self, train: Any, validation: Any) -> None: ...

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :3]

    model.module = Votes()
    assert model.predict(VECTORS).shape == (40,)
    with pytest.raises(UserError, match="Votes has votes"):
        model.predict_proba(VECTORS)


@pytest.mark.parametrize("kind", ["arrays", "image-folder"])
def test_images_need_the_weights_that_they_name(kind: str, tmp_path: Path) -> None:
    block = {"kind": kind, **NETWORK, "pretrain_steps": 1}
    if kind == "arrays":
        raw: Any = COLOUR
        block["file"] = npz(tmp_path, images=COLOUR, labels=ANIMALS)
    else:
        block["folder"] = str(pictures(tmp_path / "mine"))
        raw = [file for name in ("day", "night") for file in sorted((tmp_path / "mine" / name).glob("*.png"))]
    model, problem = home(tmp_path, block)
    with pytest.raises(UserError, match=f"{model.preprocessing.weights_hash}.*weights=FILE"):
        model.predict(raw)
    (weights,) = tmp_path.glob("*/weights.safetensors")
    model = ketscale.load(tmp_path / "home", weights=weights)
    outputs = expected(problem)
    np.testing.assert_allclose(
        model.predict_proba(raw), torch.from_numpy(outputs).softmax(1), rtol=0, atol=1e-5
    )
    # Pixels are scaled as in training.
    other = list(raw) if kind == "arrays" else [Image.open(file) for file in raw]
    np.testing.assert_allclose(model.predict_proba(other), model.predict_proba(raw), rtol=0, atol=1e-6)
    if kind == "arrays":
        for bad, message in ((np.float32(COLOUR / 255), "are no pixels"), (COLOUR[0], "height, width, 3")):
            with pytest.raises(UserError, match=message):
                model.predict(bad)


def test_a_model_pickles_and_is_copied_with_its_weights(tmp_path: Path) -> None:
    model, _ = home(tmp_path, {**BLOCK, "file": csv(tmp_path)})
    with torch.no_grad():
        model.module.weights.add_(1)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), torch.load(file, weights_only=False)]
    for each in copies:
        assert (each.predict_proba(TABLE) == model.predict_proba(TABLE)).all()
        assert not each.training


def test_a_model_is_exported(tmp_path: Path) -> None:
    model, _ = home(tmp_path, {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS)})
    x = torch.from_numpy(model.preprocessing.inputs(VECTORS)).double()
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.testing.assert_close(exported.module()(x[:7]), model(x[:7]))


def test_circuits_are_refused_by_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS)}
    model, _ = home(tmp_path, block)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    with pytest.raises(UserError, match=r"torch\.export"):
        model(torch.zeros(1, 7, dtype=torch.float64))
    model.module = torch.nn.Linear(7, 3).double()
    assert model(torch.zeros(1, 7, dtype=torch.float64)).shape == (1, 3)


def test_a_model_of_another_version_is_refused_in_a_line(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save

    home(tmp_path, {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS)})
    path = tmp_path / "home" / models.WEIGHTS
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()[models.INFO])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    del about["preprocessing"]
    path.write_bytes(save(state, {models.INFO: json.dumps(about)}))
    with pytest.raises(UserError, match=f"{models.WEIGHTS}: .*train it again") as caught:
        ketscale.load(path)
    assert "\n" not in str(caught.value)
