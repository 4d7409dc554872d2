"""Scores of classifiers are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, f1_score, roc_auc_score

from ketscale.problems import scores
from ketscale.problems.classification import Classification


@pytest.mark.parametrize("classes", [2, 3, 10])
# Coarse scores have many ties.
@pytest.mark.parametrize("decimals", [1, 15])
def test_scores_are_those_of_scikit_learn(classes: int, decimals: int) -> None:
    random = np.random.default_rng(0)
    labels = np.concatenate([np.arange(classes), random.integers(0, classes, 60)])
    logits = random.normal(size=(len(labels), classes)) + np.eye(classes)[labels]
    given = np.exp(logits.round(decimals))
    given /= given.sum(1, keepdims=True)
    expected = (
        roc_auc_score(labels, given[:, 1])
        if classes == 2
        else roc_auc_score(labels, given, multi_class="ovr")
    )
    assert scores.auc(torch.from_numpy(labels), torch.from_numpy(given)) == pytest.approx(expected, abs=1e-12)
    named = given.argmax(1)
    named[named == classes - 1] = 0  # a class that is never named
    found = scores.confusion(torch.from_numpy(labels), torch.from_numpy(named), classes)
    assert found.tolist() == confusion_matrix(labels, named).tolist()
    assert scores.weighted_f1(found) == pytest.approx(f1_score(labels, named, average="weighted"), abs=1e-14)


def test_a_class_without_samples_has_no_weight() -> None:
    labels, named = torch.tensor([0, 0, 2]), torch.tensor([0, 2, 2])
    found = scores.confusion(labels, named, 4)
    assert found.shape == (4, 4) and found.sum() == 3
    assert scores.weighted_f1(found) == pytest.approx(f1_score(labels, named, average="weighted"))


def test_outputs_beyond_the_classes_of_the_data_leave_no_area() -> None:
    rows = torch.arange(4)
    problem = Classification(
        torch.nn.Linear(2, 3), torch.zeros(4, 2), rows % 2, {"test": rows, "train": rows}, 0
    )
    found = problem.metrics("test", torch.tensor([[0.0, 1, 2]] * 4), full=True)
    assert found["auc"] is None and found["f1"] == 0
    assert found["confusion"] == [[0, 0, 2], [0, 0, 2], [0, 0, 0]]


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
