"""The linear model is at the optimum of its loss, and chooses its penalty by validation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from ketscale.problems.fitted import Samples
from ketscale.problems.vectors.linear import PENALTIES, Linear

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(60, 3)))
NOISE = torch.from_numpy(RNG.normal(size=(60, 3)))


def fitted(targets: torch.Tensor, outputs: int, penalty: float | None, parts: int = 1) -> Linear:
    model = Linear(3, outputs, penalty).double()
    train = Samples(X[:40], targets[:40])
    with torch.no_grad():
        model.fit(train, Samples(X[40:], targets[40:]) if parts > 1 else None)
    return model


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_are_fitted_by_penalised_maximum_likelihood(classes: int) -> None:
    targets = (X + NOISE)[:, :classes].argmax(1)
    model = fitted(targets, classes, penalty=2.0)
    loss = cross_entropy(model(X[:40]), targets[:40], reduction="sum") + model.weight.square().sum()
    of_weights, of_biases = torch.autograd.grad(loss, (model.weight, model.bias))
    # One logit of two classes is 0.
    free = slice(1, None) if classes == 2 else slice(None)
    assert of_weights[free].abs().max() < 1e-2 and of_biases.abs().max() < 1e-2
    assert classes == 3 or not model.weight[0].any()


@pytest.mark.parametrize("columns", [1, 2])
def test_numbers_are_fitted_by_ridge_regression(columns: int) -> None:
    targets = (X @ NOISE[:3])[:, :columns] + 5
    model = fitted(targets, columns, penalty=3.0)
    centred, shifted = X[:40] - X[:40].mean(0), targets[:40] - targets[:40].mean(0)
    weights = torch.linalg.solve(centred.T @ centred + 3.0 * torch.eye(3), centred.T @ shifted)
    torch.testing.assert_close(model.weight, weights.T, check_dtype=False)
    torch.testing.assert_close(model(X[:40]).mean(0), targets[:40].mean(0), check_dtype=False)


def test_the_penalty_is_the_best_on_validation() -> None:
    targets = (X[:, :2] + 2 * NOISE[:, :2]).argmax(1)
    scores = []
    for penalty in PENALTIES:
        outputs = fitted(targets, 2, penalty)(X[40:]).detach()
        right = float((outputs.argmax(1) == targets[40:]).double().mean())
        scores.append((right, -float(cross_entropy(outputs, targets[40:]))))
    model = fitted(targets, 2, None, parts=2)
    best = scores.index(max(scores))
    assert model.chosen == {"penalty": PENALTIES[best]} and model.tried == len(PENALTIES)
    # The loss decides between equal accuracies.
    assert [score for score, _ in scores].count(max(scores)[0]) > 1 and len(PENALTIES) == 32
    # Without validation it is 1.
    single = fitted(targets, 2, None)
    assert torch.equal(single.weight, fitted(targets, 2, 1.0).weight) and not single.chosen
