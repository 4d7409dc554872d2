"""Hybrid models as estimators of scikit-learn: its own checks pass, and they learn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ketscale import Circuit, CircuitClassifier, CircuitRegressor
from tests.unit.engines.circuits.dense import dense_unitary, dense_word

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
    values = []
    for row in angles:
        state = dense_unitary(layer.circuit, torch.tensor(row), layer.weight.detach())[:, 0]
        values.append([(state.conj() @ dense_word(word) @ state).real for word in layer.words])
    logits = np.array(values) @ last.weight.detach().numpy().T + last.bias.detach().numpy()
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


def test_two_classes_have_one_decision() -> None:
    x, y = IRIS[:100, :2], np.array(["setosa", "versicolor"])[SPECIES[:100]]
    model = quick().fit(x, y)
    assert list(model.classes_) == ["setosa", "versicolor"]
    odds = model.decision_function(x)
    assert odds.shape == (100,)
    np.testing.assert_allclose(model.predict_proba(x)[:, 1], 1 / (1 + np.exp(-odds)), atol=1e-12)
    assert np.array_equal(model.predict(x), model.classes_[(odds > 0).astype(int)])
    assert model.n_features_in_ == 2 and model.n_iter_ == 5 == len(model.loss_curve_)


# --- it learns ---


def test_it_tells_irises_apart() -> None:
    names = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
    scores = cross_val_score(CircuitClassifier(random_state=0), IRIS, names, cv=2)
    assert scores.mean() > 0.9  # by chance 0.33
    own = make_pipeline(StandardScaler(), CircuitClassifier(FOUR, random_state=0, learning_rate=0.05))
    assert cross_val_score(own, IRIS, names, cv=2).mean() > 0.8


def test_it_fits_a_curve_that_no_line_does() -> None:
    x = np.linspace(-1.5, 1.5, 100)[:, None]
    y = 100 + 5 * np.cos(2 * x[:, 0])
    twice = Circuit(1).rx(0, "x0").rot(0, "w0", "w1", "w2").rx(0, "x0").ry(0, "w3")
    model = CircuitRegressor(twice, random_state=0, learning_rate=0.05).fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) > 0.9  # a line's score is 0
    assert model.loss_curve_[-1] < 0.1 < model.loss_curve_[0]


def test_several_numbers_are_foreseen_together_whatever_their_units() -> None:
    both = np.stack([np.sin(IRIS[:, 0]), IRIS[:, 1] * IRIS[:, 2]], axis=1)
    model = CircuitRegressor(random_state=0, epochs=20).fit(IRIS, both)
    assert model.predict(IRIS).shape == (150, 2) and model.score(IRIS, both) > 0.8
    scaled = CircuitRegressor(random_state=0, epochs=20).fit(IRIS, both * [1e3, 1e-3] + [5.0, 0.0])
    np.testing.assert_allclose(
        scaled.predict(IRIS), model.predict(IRIS) * [1e3, 1e-3] + [5.0, 0.0], rtol=1e-6, atol=1e-6
    )
    one = CircuitRegressor(random_state=0, epochs=2)
    column = one.fit(IRIS, both[:, :1]).predict(IRIS)
    assert column.shape == (150, 1) and np.array_equal(column[:, 0], one.fit(IRIS, both[:, 0]).predict(IRIS))


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
    again = clone(first).fit(IRIS, SPECIES)
    assert torch.equal(weights(first), weights(again)) and first.loss_curve_ == again.loss_curve_
    other = quick(circuit=circuit, random_state=1).fit(IRIS, SPECIES)
    assert not torch.allclose(weights(first), weights(other))
    state = np.random.RandomState(0)
    one, two = (quick(circuit=circuit, random_state=state).fit(IRIS, SPECIES) for _ in range(2))
    assert torch.equal(weights(one), weights(first)) and not torch.allclose(weights(one), weights(two))


def test_weights_start_as_torchs_layers_do() -> None:
    x = np.random.default_rng(0).normal(size=(20, 100))
    model = quick(epochs=1, learning_rate=1e-12, max_qubits=6, layers=8).fit(x, x[:, 0] > 0)
    first, _, layer, last = model.module_
    assert 0.09 < first.weight.abs().max() <= 0.1
    assert 0.3 < last.weight.abs().max() <= 6**-0.5
    assert 0 <= layer.weight.min() < 0.2 and 6.1 < layer.weight.max() < 6.3
    assert len(layer.weight) == 144


# --- what is refused ---


def test_what_does_not_fit_or_diverges_is_refused() -> None:
    for estimator in (CircuitClassifier(FOUR), CircuitRegressor(FOUR)):
        with pytest.raises(ValueError, match="the circuit has 4 inputs, but X has 3 features"):
            estimator.fit(IRIS[:, :3], SPECIES)
    for value in (0, 2.5):
        with pytest.raises(ValueError, match="layers must be a whole number"):
            quick(layers=value).fit(IRIS, SPECIES)
    with pytest.raises(ValueError, match=r"the loss is (inf|nan): choose a smaller learning_rate"):
        quick(learning_rate=1e308).fit(IRIS, SPECIES)
