"""`kernel` and `svm`: the Gram matrix against PennyLane and closed forms, the machines against scikit-learn itself."""

from __future__ import annotations

import numpy as np
import pennylane as qml
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, SVR

from ketscale.problems.vectors import kernels
from ketscale.problems.vectors.kernels import SVM, Kernel

DRAW = np.random.default_rng(7)


def standardised(x: np.ndarray) -> torch.Tensor:
    deviation = x.std(0)
    return torch.tensor((x - x.mean(0)) / np.where(deviation > 0, deviation, 1))


DIGITS, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
DIGITS = standardised(DIGITS.numpy())
DIABETES, PROGRESS = load_diabetes(return_X_y=True)
DIABETES, PROGRESS = standardised(DIABETES), standardised(PROGRESS[:, None])


def by_pennylane(x: np.ndarray, layers: int) -> np.ndarray:
    """The Gram matrix, state by state, of PennyLane's own template on default.qubit."""
    qubits = x.shape[1]

    @qml.qnode(qml.device("default.qubit", wires=qubits))
    def state(features):
        qml.IQPEmbedding(features, wires=range(qubits), n_repeats=layers)
        return qml.state()

    states = np.array([state(row) for row in x])
    return np.abs(states @ states.conj().T) ** 2


@pytest.mark.parametrize(
    "simulator, qubits, layers, bandwidth",
    [
        ("fused", 5, 3, 0.7),
        ("fused", 2, 1, 0.3),
        ("default.qubit", 3, 2, 1.0),
        ("lightning.qubit", 1, 1, 1.0),
    ],
)
def test_the_gram_matrix_is_that_of_pennylanes_iqp_embedding(simulator, qubits, layers, bandwidth):
    x = DRAW.normal(size=(6, qubits))
    model = Kernel(qubits, layers, simulator, qubits, 2, bandwidth=bandwidth).double()
    np.testing.assert_allclose(
        model.gram(torch.tensor(x)), by_pennylane(bandwidth * x, layers), rtol=0, atol=1e-12
    )


def test_the_gram_matrix_of_one_qubit_has_a_closed_form():
    """One layer is RZ(x) H |0>; two are RZ(x) RX(x) |0>, since H RZ(x) H = RX(x)."""
    x = torch.linspace(-3, 4, 9, dtype=torch.float64)[:, None]
    odd, even = (x - x.T) / 2, (x + x.T) / 2
    once = Kernel(1, 1, None, 1, 2, bandwidth=1.0).double().gram(x)
    twice = Kernel(1, 2, None, 1, 2, bandwidth=1.0).double().gram(x)
    torch.testing.assert_close(once, odd.cos() ** 2, rtol=0, atol=1e-14)
    expected = odd.cos() ** 4 + even.cos() ** 2 * odd.sin() ** 2
    torch.testing.assert_close(twice, expected, rtol=0, atol=1e-14)


def test_the_control_has_scikit_learns_radial_basis_function():
    x = torch.tensor(DRAW.normal(size=(20, 5)))
    model = SVM(5, 2, bandwidth=0.6).double()
    np.testing.assert_allclose(model.gram(x), rbf_kernel(x.numpy(), gamma=0.36 / 5), rtol=0, atol=1e-14)


@pytest.mark.parametrize("classes", [2, 10])
def test_classes_are_those_of_scikit_learns_svc(classes):
    rows = classes > LABELS
    x, y = DIGITS[rows], LABELS[rows]
    old, new = slice(0, 250), slice(250, None)
    model = SVM(64, classes, cost=10.0, bandwidth=1.0).double()
    model.fit((x[old], y[old]), None)
    reference = SVC(C=10.0, gamma=1 / 64, decision_function_shape="ovo", break_ties=False).fit(x[old], y[old])
    outputs = model(x[new]).detach()
    assert outputs.shape == (len(x[new]), classes)
    # The solver stops at a tolerance of 1e-3, so a vote of nearly nothing may fall either way.
    alike = outputs.argmax(1).numpy() == reference.predict(x[new])
    assert alike.mean() > 0.995
    assert (outputs.argmax(1) == y[new]).double().mean() > 0.8
    reference.set_params(decision_function_shape="ovr")
    expected = reference.decision_function(x[new])
    if classes == 2:
        # Squeezed, and with a vote.
        side = (outputs[:, 1] - outputs[:, 0]).numpy()
        assert (np.sign(side) == np.sign(expected)).all()
    else:
        assert np.median(np.abs(outputs.numpy() - expected)) < 1e-3
    actual, others = (set(map(tuple, rows.tolist())) for rows in (model.supports, reference.support_vectors_))
    assert len(actual ^ others) <= 0.02 * len(others)


def test_the_kernels_machine_is_scikit_learns_on_the_same_matrix():
    x, y = (part[LABELS < 3][:280] for part in (DIGITS, LABELS))
    model = Kernel(4, 2, None, 64, 3, cost=5.0, bandwidth=0.3).double()
    model.fit((x[:200], y[:200]), None)
    # Principal components of scikit-learn, whose signs are arbitrary.
    whitened = PCA(4, whiten=True, svd_solver="full").fit(x[:200].numpy())
    scale = np.sqrt(199 / 200)
    components = model.components(x).numpy()
    expected = whitened.transform(x.numpy()) / scale
    signs = np.sign((components * expected).sum(0))
    np.testing.assert_allclose(components, signs * expected, rtol=0, atol=1e-9)
    gram = by_pennylane(0.3 * components, 2)
    machine = SVC(C=5.0, kernel="precomputed").fit(gram[:200, :200], y[:200])
    predicted = model(x[200:]).argmax(1).numpy()
    assert (predicted == machine.predict(gram[200:, :200])).mean() > 0.995


def test_numbers_are_those_of_scikit_learns_svr_in_every_column():
    targets = torch.cat([PROGRESS, -2 * PROGRESS + DIABETES[:, :1]], dim=1)
    old, new = slice(0, 300), slice(300, None)
    model = SVM(10, 2, cost=1.0, bandwidth=1.0).double()
    model.fit((DIABETES[old], targets[old]), None)
    for at in range(2):
        expected = SVR(C=1.0, gamma=0.1, tol=1e-6).fit(DIABETES[old], targets[old, at])
        np.testing.assert_allclose(
            model(DIABETES[new])[:, at].detach(), expected.predict(DIABETES[new]), rtol=0, atol=5e-3
        )


def test_validation_chooses_among_few_trials_and_says_what():
    """By hand, with scikit-learn alone: the first of the best in the order of bandwidths, then costs."""
    x, y, train, test = DIGITS, LABELS, slice(0, 120), slice(300, 500)
    model = SVM(64, 10).double()
    model.fit((x[train], y[train]), (x[test], y[test]))
    scores = {}
    for bandwidth in kernels.BANDWIDTHS:
        for cost in kernels.COSTS:
            expected = SVC(C=cost, gamma=bandwidth**2 / 64, break_ties=True, decision_function_shape="ovr")
            scores[bandwidth, cost] = expected.fit(x[train], y[train]).score(x[test], y[test])
    best = model.chosen["bandwidth"], model.chosen["cost"]
    assert scores[best] >= max(scores.values()) - 0.0051, "one vote may fall either way"
    assert len(set(scores.values())) > 4


def test_nothing_is_learned_of_validation_but_the_choice():
    x, y = DIGITS[:200], LABELS[:200]
    one, other = (SVM(64, 10, cost=1.0, bandwidth=0.3).double() for _ in range(2))
    one.fit((x, y), (DIGITS[200:300], LABELS[200:300]))
    other.fit((x, y), None)
    assert one.chosen == other.chosen == {}
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.mark.parametrize("present", [{1, 2}, {1}])
def test_a_class_without_training_samples_is_never_named(present):
    rows = torch.isin(LABELS, torch.tensor(list(present)))
    model = SVM(64, 3, cost=1.0, bandwidth=1.0).double()
    model.fit((DIGITS[rows][:80], LABELS[rows][:80]), None)
    assert set(model(DIGITS[:300]).argmax(1).tolist()) == present


def test_a_fitted_model_is_loaded_with_what_it_learned():
    model = Kernel(2, 1, None, 64, 10, cost=1.0, bandwidth=0.5).double()
    model.fit((DIGITS[:100], LABELS[:100]), None)
    fresh = Kernel(2, 1, None, 64, 10).double()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(DIGITS[100:120]), model(DIGITS[100:120]))
