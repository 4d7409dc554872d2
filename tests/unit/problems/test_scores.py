"""Scores of classifiers are scikit-learn's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from sklearn.metrics import confusion_matrix, f1_score, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight

from ketscale.config import Config
from ketscale.config.metrics import METRICS, Targets, metrics_by_name
from ketscale.errors import UserError
from ketscale.problems import scores
from ketscale.problems.registry import FAMILIES
from ketscale.problems.supervised import Classification
from tests import toys
from tests.own_files import ANIMALS, VECTORS, npz, study_settings


@pytest.mark.parametrize("classes", [2, 3, 10])
# Coarse scores have many ties.
@pytest.mark.parametrize("decimals", [1, 15])
def test_scores_are_those_of_scikit_learn(classes: int, decimals: int) -> None:
    random = np.random.default_rng(0)
    labels = np.concatenate([np.arange(classes), random.integers(0, classes, 60)])
    logits = random.normal(size=(len(labels), classes)) + np.eye(classes)[labels]
    given = np.exp(logits.round(decimals))
    given /= given.sum(1, keepdims=True)
    expected = roc_auc_score(labels, given[:, 1] if classes == 2 else given, multi_class="ovr")
    assert scores.auc(torch.from_numpy(labels), torch.from_numpy(given)) == pytest.approx(expected, abs=1e-12)
    given[given.argmax(1) == classes - 1, 0] = 2  # a class that is never named
    rows, truth, named = torch.arange(len(labels)), torch.from_numpy(labels), given.argmax(1)
    problem = Classification(torch.nn.Linear(2, 2), rows, truth, {"train": rows, "test": rows}, 0)
    metrics = problem.metrics("test", torch.from_numpy(given), full=True)
    assert metrics["confusion"] == confusion_matrix(labels, named).tolist()
    assert metrics["f1"] == pytest.approx(f1_score(labels, named, average="weighted"), abs=1e-14)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_metric_by_name_is_scikit_learns(classes: int) -> None:
    random = np.random.default_rng(1)
    labels = np.concatenate([np.arange(classes), random.integers(0, classes, 60)])
    inputs = random.dirichlet(np.ones(classes), len(labels))
    by_hand = {
        "balanced_accuracy": reference.balanced_accuracy_score(labels, inputs.argmax(1)),
        "f1_macro": reference.f1_score(labels, inputs.argmax(1), average="macro"),
        "recall_weighted": reference.recall_score(labels, inputs.argmax(1), average="weighted"),
        "matthews_corrcoef": reference.matthews_corrcoef(labels, inputs.argmax(1)),
        "log_loss": reference.log_loss(labels, inputs),
        "roc_auc_ovr": scores.auc(torch.from_numpy(labels), torch.from_numpy(inputs)),
    }
    known = {name: scores.score(name, torch.from_numpy(labels), torch.from_numpy(inputs)) for name in by_hand}
    assert known == pytest.approx(by_hand, rel=1e-12)


def test_every_metric_that_a_workload_may_choose_is_one_of_scikit_learn_and_of_the_direction_that_it_says() -> (
    None
):
    labels, right = torch.arange(60) % 3, torch.eye(3, dtype=torch.float64)[torch.arange(60) % 3]
    wrong, numbers = right.roll(1, 0), torch.arange(1.0, 41.0, dtype=torch.float64)[:, None]
    result: dict[Targets, Any] = {
        "classes": (labels, right, wrong), "numbers": (numbers, numbers, numbers.flip(0)),
    }  # fmt: skip
    for targets, (truth, good, bad) in result.items():
        for name in metrics_by_name(targets).keys() - {metric.name for metric in METRICS[targets]}:
            metric = metrics_by_name(targets)[name]
            better, worse = (scores.score(name, truth, outputs) for outputs in (good, bad))
            assert better is not None and worse is not None
            assert better > worse if metric.better == "up" else better < worse, name


def test_the_chosen_metric_is_measured_with_what_guessing_gives() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    rows = torch.arange(4)
    arguments = torch.nn.Linear(2, 2), torch.zeros(4, 2), labels, {"test": rows, "train": rows}, 0
    logits = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    metrics = Classification(*arguments, metric="balanced_accuracy").metrics("test", logits, full=True)
    assert (metrics["balanced_accuracy"], metrics["chance"]) == (pytest.approx(5 / 6), 0.5)
    assert Classification(*arguments, metric="balanced_accuracy").right("test", logits) is None
    assert Classification(*arguments).metrics("test", logits, full=True)["chance"] == 0.75
    single = Classification(*arguments, metric="roc_auc_ovr")
    single.rows_test = rows[:3]
    assert single.metrics("test", logits[:3], full=True)["roc_auc_ovr"] is None


@pytest.mark.parametrize("weights", [None, "balanced", [1.0, 2.0, 0.5]])
@pytest.mark.parametrize("loss", [None, "hinge"])
def test_a_loss_with_weights_is_torchs(loss: str | None, weights: Any) -> None:
    problem, rows = toys.classification(dropout=0.0, loss=loss, class_weights=weights), torch.arange(9)
    train = problem.get_buffer("rows_train")
    labels = problem.get_buffer("targets")[train[rows]]
    every = problem.get_buffer("targets")[train].numpy()
    by_hand = (
        compute_class_weight("balanced", classes=np.arange(3), y=every) if weights == "balanced" else weights
    )
    factors = None if weights is None else torch.tensor(by_hand, dtype=torch.float64)
    outputs = problem.model(problem.get_buffer("inputs")[train[rows]])
    reference = torch.nn.functional.multi_margin_loss if loss else torch.nn.functional.cross_entropy
    expected = reference(outputs, labels, weight=factors, reduction="sum")
    torch.testing.assert_close(problem(rows, 0)[0], expected, rtol=1e-12, atol=0)
    full = problem.metrics("train", problem.outputs("train", torch.arange(37)), full=False)["loss"]
    with torch.no_grad():
        assert full == pytest.approx(float(problem(torch.arange(37), 0)) / 37, rel=1e-12)


def test_single_cases_are_right_as_the_accuracy_says() -> None:
    labels = torch.tensor([1, 0, 1, 1, 0])
    problem = Classification(
        torch.nn.Linear(2, 2),
        torch.zeros(5, 2),
        labels,
        {"train": torch.arange(2), "test": torch.tensor([4, 2, 0])},
        0,
    )
    logits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert problem.right("test", logits).tolist() == [1, 0, 1]
    assert problem.metrics("test", logits, full=False)["accuracy"] == 2 / 3


def test_a_metric_moves_with_each_sample_as_without_it() -> None:
    random = np.random.default_rng(1)
    truth, predicted = random.normal(size=(2, 50, 2))
    errors = np.abs(predicted - truth).mean(1)
    without = np.log((errors.sum() - errors) / 49)
    result = scores.influence("mae", torch.from_numpy(truth), torch.from_numpy(predicted))
    np.testing.assert_allclose(result, 49 * (without.mean() - without), rtol=1e-9)
    many = torch.from_numpy(random.exponential(size=(4000, 1)))
    spread = scores.influence("mae", torch.zeros_like(many), many)
    assert spread is not None and len(spread) == 4000
    assert float(spread.std()) == pytest.approx(float(many.std() / many.mean()), rel=0.2)
    labels, shares = torch.arange(6) % 2, torch.eye(2).double()[1 - torch.arange(6) % 2]
    assert scores.influence("matthews_corrcoef", labels, shares) is None  # below 0


@pytest.mark.parametrize(
    ("metric", "model", "message"),
    [("log_loss", "svm", "needs probabilities"), ("top_k_accuracy", "mlp", "2 targets or classes")],
)
def test_a_metric_that_says_nothing_is_refused(metric: str, model: str, message: str, tmp_path: Path) -> None:
    block = {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS == "cat"), "metric": metric}
    content = study_settings(block)
    if model == "svm":
        content["protocols"] = {"p": {"precision": "fp64", "timed": False}}
    content["studies"]["s"]["axes"] |= {
        "model": model,
        "qubits": 0,
        "layers": 0,
        "simulator": "none",
        "batch": 1,
    }
    config = Config.of(content, FAMILIES)
    settings = config.settings(config.runs[0])
    settings.family.prepare(settings.workload, tmp_path / "features.json", None)
    data = settings.family.read(settings, tmp_path / "features.json")
    with pytest.raises(UserError, match=message):
        settings.family.build(settings, data, torch.device("cpu"))
