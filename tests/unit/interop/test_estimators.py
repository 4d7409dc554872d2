"""Hybrid models as estimators of scikit-learn: its own checks pass, and they learn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

from ketscale import Circuit, CircuitClassifier, CircuitRegressor
from tests.unit.engines.circuits.dense import final_states, means

# As many features as iris has.
FOUR = (
    Circuit(4).ry(0, "x0").ry(1, "x1").ry(2, "x2").ry(3, "x3").cnot(0, 1).cnot(2, 3).ry(1, "w0").ry(3, "w1")
)
IRIS, SPECIES = load_iris(return_X_y=True)


def quick(**parameters: Any) -> CircuitClassifier:
    return CircuitClassifier(**{"epochs": 5, "max_qubits": 3, "random_state": 0, **parameters})


def weights(estimator: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in estimator.module_.parameters()])


NAMES, CASES = parametrize_with_checks([CircuitClassifier(), CircuitRegressor()]).mark.args
# A check that both estimators share runs for the regressor alone.
CHECKS = {getattr(case, "values", case)[1].func.__name__: case for case in CASES}


# The other check that is skipped, of arrays of other libraries, is skipped for every estimator without SCIPY_ARRAY_API.
@pytest.mark.parametrize(NAMES, CHECKS.values(), ids=CHECKS)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# --- what is computed ---


@pytest.mark.parametrize("circuit", [None, FOUR])
def test_a_prediction_is_that_of_its_parts(circuit: Circuit | None) -> None:
    model = quick(circuit=circuit, observables=["ZIII", "IIZX"] if circuit else None).fit(IRIS, SPECIES)
    rows = IRIS[[3, 77, 140]]
    layer, last = model.module_[-2:]
    angles = rows
    if circuit is None:
        first = model.module_[0]
        standard = (rows - IRIS.mean(0)) / IRIS.std(0)
        angles = np.tanh(standard @ first.weight.detach().numpy().T + first.bias.detach().numpy())
        assert layer.circuit.qubits == 3
    states = final_states(layer.circuit, torch.tensor(angles), layer.weight.detach())
    values = means(states, layer.words).numpy()
    logits = values @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    np.testing.assert_allclose(model.decision_function(rows), logits, atol=1e-12)
    odds = np.exp(logits)
    np.testing.assert_allclose(model.predict_proba(rows), odds / odds.sum(1, keepdims=True), atol=1e-12)
    assert np.array_equal(model.predict(rows), logits.argmax(1))


def test_the_loss_of_an_epoch_is_that_of_its_samples() -> None:
    """With one batch and hardly any step, every epoch has the loss of the model as it is."""
    model = quick(batch_size=1000, learning_rate=1e-12, epochs=2).fit(IRIS, SPECIES)
    loss = -np.log(model.predict_proba(IRIS)[np.arange(150), SPECIES]).mean()
    assert model.loss_curve_ == pytest.approx([loss, loss], rel=1e-9)
    number = CircuitRegressor(batch_size=1000, learning_rate=1e-12, epochs=1, random_state=0)
    x, y = load_diabetes(return_X_y=True)
    number.fit(x, y)
    loss = ((number.predict(x) - y) ** 2).mean() / y.var()
    assert number.loss_curve_ == pytest.approx([loss], rel=1e-9)
    # Two batches of different sizes count as their samples do.
    halves = quick(batch_size=100, learning_rate=1e-12, epochs=1).fit(IRIS, SPECIES)
    assert halves.loss_curve_ == pytest.approx(model.loss_curve_[:1], rel=1e-9)


# --- it learns ---


# --- random numbers ---


@pytest.mark.parametrize("circuit", [None, FOUR])
def test_a_state_makes_the_same_model_and_leaves_torchs_generator_alone(circuit: Circuit | None) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = quick(circuit=circuit).fit(IRIS, SPECIES)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert np.array_equal(pickle.loads(pickle.dumps(first)).predict_proba(IRIS), first.predict_proba(IRIS))
    assert clone(first).get_params() == first.get_params()
    repeat = clone(first).fit(IRIS, SPECIES)
    assert torch.equal(weights(first), weights(repeat)) and first.loss_curve_ == repeat.loss_curve_
    other = quick(circuit=circuit, random_state=1).fit(IRIS, SPECIES)
    assert not torch.allclose(weights(first), weights(other))
    state = np.random.RandomState(0)
    one, two = (quick(circuit=circuit, random_state=state).fit(IRIS, SPECIES) for _ in range(2))
    assert torch.equal(weights(one), weights(first)) and not torch.allclose(weights(one), weights(two))


# --- what is refused ---


def test_what_does_not_fit_or_diverges_is_refused() -> None:
    for estimator, rows in (
        (CircuitRegressor(FOUR), IRIS[:, :3]),
        (quick(layers=2.5), IRIS),
        (quick(learning_rate=1e308), IRIS),
    ):
        with pytest.raises((TypeError, ValueError), match=r"features|layers|learning_rate"):
            estimator.fit(rows, SPECIES)
