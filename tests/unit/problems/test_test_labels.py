"""What the samples of the test are labelled changes no parameter, no history and no choice, but test metrics and hashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ketscale.config import Config
from ketscale.jobs import outcome
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.registry import FAMILIES
from ketscale.training.fit import Fit
from ketscale.training.history import History
from tests.own_files import ANIMALS, SIGNALS, VECTORS, npz, study_settings
from tests.toys import trainer

PARTS = np.repeat(["train", "validation", "test"], [20, 10, 10])
TEST = np.flatnonzero(PARTS == "test")
NUMBERS = VECTORS[:, :2] * [1.0, 50.0]
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rows": ({"kind": "rows", "split": "given"}, {"x": VECTORS, "y": ANIMALS, "split": PARTS}),
    "regression": (
        {"kind": "rows", "split": "given", "task": "regression"},
        {"x": VECTORS, "y": NUMBERS, "split": PARTS},
    ),
    "series": ({"kind": "series", "split": "given"}, {"x": SIGNALS, "y": ANIMALS, "split": PARTS}),
}
STOPPING = {"early_stopping": {"monitor": "loss", "patience": 2}, "plateau": {"factor": 0.5, "patience": 0}}


def trained(
    block: dict[str, Any], arrays: dict[str, Any], folder: Path, fitted: str | None = None
) -> dict[str, Any]:
    """What a run of a workload, or of a model that is `fitted`, learns, chooses and reaches, and its hashes."""
    folder.mkdir()
    result = study_settings({**block, "file": npz(folder, **arrays)}, epochs=8, **STOPPING)
    if fitted:
        result["protocols"]["p"] = {"precision": "fp64", "timed": False}
        result["studies"]["s"]["axes"] |= {"model": fitted, "batch": 1}
        if fitted != "kernel":
            result["studies"]["s"]["axes"] |= {"qubits": 0, "layers": 0, "simulator": "none"}
    config = Config.of(result, FAMILIES)
    (run,) = config.runs
    settings = config.settings(run)
    family, manifest = settings.family, folder / "features.json"
    assert family.prepare and family.read
    family.prepare(settings.workload, manifest, None)
    data = family.read(settings, manifest)
    torch.manual_seed(0)
    problem = family.build(settings, data, torch.device("cpu")).double()
    loop: Any
    if fitted:
        loop = Fit(problem, World(), Clock(torch.device("cpu"), 0, frozenset()), 1, History(None))
    else:
        loop = trainer(problem, {"epochs": 8, "learning_rate": 0.05, **STOPPING}, batch=8)
    quality = outcome.run(loop).quality
    assert quality is not None
    return {
        "learned": {name: tensor.numpy().tobytes() for name, tensor in problem.model.state_dict().items()},
        "history": [] if fitted else [{**row, "epoch_s": 0} for row in loop.history],
        "losses": [] if fitted else loop.losses,
        "chosen": (quality["best_epoch"], quality["epochs"], quality.get("chosen"), loop.weights_hash()),
        "validation": quality["validation"],
        "tested": quality["test"],
        "hashes": (data.data_hash, data.features_hash),
    }


@pytest.mark.parametrize(
    ("name", "fitted"),
    [
        *((name, None) for name in CASES),
        ("rows", "kernel"),
        ("rows", "svm"),
        ("rows", "linear"),
        ("regression", "linear"),
    ],
)
def test_permuted_labels_of_the_test_change_its_metrics_and_hashes_alone(
    name: str, fitted: str | None, tmp_path: Path
) -> None:
    block, arrays = CASES[name]
    permuted = arrays["y"].copy()
    permuted[TEST] = permuted[np.roll(TEST, 1)]
    one = trained(block, arrays, tmp_path / "one", fitted)
    other = trained(block, {**arrays, "y": permuted}, tmp_path / "other", fitted)
    assert bool(fitted) == bool(one["chosen"][2])
    for what in ("learned", "history", "losses", "chosen", "validation"):
        assert one[what] == other[what], what
    assert one["tested"] != other["tested"]
    assert not set(one["hashes"]) & set(other["hashes"])
