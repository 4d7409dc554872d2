"""The models that are standard methods: what they learn is what is counted, or what scikit-learn and MNE compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ketscale.config import Config
from ketscale.problems import library, models
from ketscale.problems.fitted import Samples
from ketscale.problems.problem import Problem
from ketscale.problems.registry import FAMILIES
from ketscale.problems.vectors.majority import Majority
from ketscale.training.fit import fit
from tests.tiny_study import TINY

RNG = np.random.default_rng(5)
BASELINES = [
    (name, kind)
    for name, family in FAMILIES.items()
    for kind, model in family.models.items()
    if model.baseline
]


def fitted(block: dict[str, Any], model: str, folder: Path, precision: str = "fp64") -> tuple[Problem, Any]:
    """The problem of a workload prepared in a folder, whose model is fitted to a few samples, and the run's settings."""
    axes = {
        "workload": "mine", "model": model, "qubits": 0, "layers": 0, "batch": 1, "simulator": "none",
        "backend": "cpu-n1r1t1", "protocol": "fit", "seed": 0,
    }  # fmt: skip
    study = {"kind": "accuracy", "question": "?", "axes": axes}
    protocols = {"fit": {"precision": precision, "timed": False}}
    config = Config.of(
        {"title": "", "workloads": {"mine": block}, "protocols": protocols, "studies": {"s": study}}, FAMILIES
    )
    settings = config.settings(config.runs[0])
    family, manifest = settings.family, folder / "features.json"
    assert family.prepare and family.read
    if not manifest.exists():
        family.prepare(settings.workload, manifest, None)
    problem = family.build(settings, family.read(settings, manifest), torch.device("cpu"))
    problem.convert(torch.device("cpu"), torch.float64 if precision == "fp64" else torch.float32)
    fit(problem, most=100)
    return problem, settings


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize(("family", "kind"), BASELINES)
def test_each_is_tested_and_comes_back_from_its_file(
    family: str, kind: str, precision: str, tmp_path: Path, digits_features: Path
) -> None:
    if kind == "csp":
        pytest.importorskip("mne", reason="the extra eeg is not installed")
    ((name, block),) = TINY[family]["workloads"].items()
    folder = digits_features.parent if family == "images" else tmp_path
    problem, settings = fitted({"kind": name, **block}, kind, folder, precision)
    outputs = problem.outputs("test", torch.arange(problem.splits["test"]))
    quality = problem.metrics("test", outputs, full=True)
    assert 0 <= quality[settings.family.headline.name] <= 1
    (tmp_path / models.WEIGHTS).write_bytes(models.saved(settings, problem))
    state = library.load(tmp_path).module.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in problem.model.state_dict().items())


def test_the_majority_is_that_of_training() -> None:
    model = Majority(3)
    model.fit(Samples(torch.zeros(5, 2), torch.tensor([0, 2, 2, 1, 2])), None)
    assert model(torch.zeros(4, 2)).argmax(1).tolist() == [2] * 4
    model = Majority(2)
    model.fit(Samples(torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [3.0, 6.0]])), None)
    assert model(torch.zeros(1, 2)).tolist() == [[2.0, 4.0]]


def test_trials_have_the_common_spatial_patterns_of_mne(tmp_path: Path) -> None:
    """Two channels whose powers say the class, mixed with four of noise."""
    mne = pytest.importorskip("mne", reason="the extra eeg is not installed")
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    mne.set_log_level("ERROR")
    labels = np.arange(120) % 2
    sources = RNG.normal(size=(120, 6, 50))
    sources[:, 0] *= np.where(labels, 1.5, 1.0)[:, None]
    signals = np.einsum("ij,njt->nit", RNG.normal(size=(6, 6)), sources)
    parts = np.repeat(["train", "validation", "test"], [70, 20, 30])
    np.savez(tmp_path / "x.npz", x=signals, y=labels, split=parts)
    block = {"kind": "series", "file": str(tmp_path / "x.npz"), "split": "given"}
    problem, _ = fitted(block, "csp", tmp_path)
    x = np.load(next(tmp_path.glob("*/signals.npy"))).astype(float)
    patterns = mne.decoding.CSP(4, reg="oas", log=True).fit(x[:70], labels[:70])
    linear = LinearDiscriminantAnalysis().fit(patterns.transform(x[:70]), labels[:70])
    outputs = problem.outputs("test", torch.arange(30))
    expected = linear.decision_function(patterns.transform(x[90:]))
    assert (outputs[:, 1] - outputs[:, 0]).tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert np.mean((expected > 0) == labels[90:]) > 0.6
