"""The PennyLane device ketscale.fused: observables with numbers of their own, shots, wires, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from pennylane import numpy as pnp
from pennylane.exceptions import DeviceError, QuantumFunctionError

from ketscale.errors import UserError
from ketscale.interop import tape_cache
from ketscale.interop.device import FusedDevice
from tests.unit.interop.programs import entangled, last
from tests.unit.interop.test_doors import draws
from tests.unit.interop.test_from_qnode import loss

WIRES, POINT = 4, np.array([0.4, -0.7, 1.1, 0.25])


def device(**settings: Any) -> Any:
    return FusedDevice(wires=WIRES, **settings)


# PennyLane asks for the shape of a list of tensors, about which torch warns once in a process.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_coefficients_and_matrices_of_observables_are_differentiated() -> None:
    """The fused route knows none: they must not lose their gradients on the way."""

    def function(factors: Any) -> Any:
        entangled(POINT)
        return qml.expval(qml.Hamiltonian(factors, [qml.Z(0), qml.X(1)]) + qml.s_prod(factors[0], qml.Y(2)))

    def measured(h: Any) -> Any:
        qml.RX(0.4, wires=0)
        qml.RY(0.3, wires=0)
        return qml.expval(qml.Hermitian(h, wires=0))

    for result, values in ((function, [0.3, 0.7]), (measured, [[0.3, 0.2], [0.2, -1.0]])):
        slopes = []
        for each in (device(), qml.device("default.qubit", wires=WIRES)):
            at = torch.tensor(values, dtype=torch.float64, requires_grad=True)
            slopes += [
                qml.grad(qml.QNode(result, each))(pnp.array(values, requires_grad=True)),
                torch.autograd.grad(qml.QNode(result, each)(at), at)[0],
            ]
        assert abs(slopes[0]).max() > 1e-3
        for slope in slopes[1:]:
            np.testing.assert_allclose(slope, slopes[0], rtol=1e-9, atol=1e-10)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's forward mode itself
def test_second_derivatives_are_exact_or_parameter_shifts() -> None:
    def function(x: Any) -> Any:
        qml.RX(x[0], wires=0)
        qml.RY(x[1], wires=0)
        return qml.expval(qml.Z(0))

    x = pnp.array([0.3, 0.5], requires_grad=True)
    own, mixed = -np.prod(np.cos(x)), np.prod(np.sin(x))
    expected = [[own, mixed], [mixed, own]]
    by_shifts = qml.QNode(function, device(), max_diff=2)
    np.testing.assert_allclose(qml.jacobian(qml.grad(by_shifts))(x), expected, atol=1e-10)
    with pytest.raises(QuantumFunctionError):
        qml.QNode(function, device(), diff_method="adjoint", max_diff=2)(x)
    leaf, qnode = torch.tensor([0.3, 0.5], dtype=torch.float64), qml.QNode(function, device(), max_diff=2)
    with qml.Tracker(qnode.device) as tracker:
        np.testing.assert_allclose(torch.func.hessian(qnode)(leaf), expected, atol=1e-10)
    # By the device itself, without shifted circuits.
    assert tracker.totals["simulations"] == 1


def test_samples_and_gradients_with_shots() -> None:
    """Their distribution is the exact one's, and gradients are shifts; 5 standard deviations are allowed."""
    shots = 20_000

    def measured() -> Any:
        return (
            qml.probs(wires=[2, 0]),
            qml.counts(wires=[2, 0]),
            qml.sample(wires=[2, 0]),
            qml.expval(qml.X(1)),
        )

    def exactly() -> Any:
        return qml.probs(wires=[2, 0]), qml.expval(qml.X(1))

    def sampled(seed: int, shots: int) -> Any:
        return qml.set_shots(qml.QNode(partial(last, measured), device(seed=seed)), shots)(POINT)

    exact, mean = qml.QNode(partial(last, exactly), device())(POINT)
    probabilities, counts, samples, value = sampled(1, shots)
    assert sum(counts.values()) == len(samples) == shots
    counts_of = np.bincount(samples @ [2, 1], minlength=4), [counts.get(f"{k:02b}", 0) for k in range(4)]
    for result in (probabilities, *(np.array(each) / shots for each in counts_of)):
        assert (abs(result - exact) <= 5 * np.sqrt(exact * (1 - exact) / shots)).all()
    assert abs(value - mean) <= 5 / np.sqrt(shots)
    np.testing.assert_array_equal(*(sampled(5, 100)[2] for _ in range(2)))
    unused = qml.QNode(lambda x: (qml.RX(x, wires=0), qml.expval(qml.Z(0)))[1], device(seed=2))
    slope = qml.grad(qml.set_shots(unused, shots))(pnp.array(0.7, requires_grad=True))
    assert slope == pytest.approx(-np.sin(0.7), abs=5 / np.sqrt(shots))


def test_wires_have_any_names_and_may_be_left_out() -> None:
    def function() -> Any:
        qml.X(7)
        qml.CNOT(wires=[7, "b"])
        return qml.expval(qml.Z("b")), qml.expval(qml.Z("a")), qml.probs(wires=["a", 7])

    for wires in (["a", "b", 7], None):
        b, a, both = qml.QNode(function, FusedDevice(wires=wires))()
        assert (b, a) == (-1, 1)
        np.testing.assert_allclose(both, [0, 1, 0, 0], atol=1e-15)


class OneByOne(qml.operation.Operation):
    """A rotation whose decomposition looks at its angle, which a batch of angles does not allow."""

    num_wires, num_params, ndim_params = 1, 1, (0,)

    def decomposition(self) -> list[Any]:
        (angle,) = self.parameters
        return [qml.RX(angle if angle > 0.4 else 2 * angle, wires=self.wires)]


def test_a_batch_that_cannot_be_decomposed_runs_sample_by_sample_if_pennylane_divides_it() -> None:
    @qml.qnode(device())
    def qnode(x: Any) -> Any:
        OneByOne(x, wires=0)
        return qml.expval(qml.Z(0))

    x = torch.tensor([0.3, 0.5], dtype=torch.float64, requires_grad=True)
    with pytest.raises(UserError, match="broadcast_expand"):
        qnode(x)
    values = qml.transforms.broadcast_expand(qnode)(x)
    expected = torch.cos(x * torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(values, expected)
    gradients = (torch.autograd.grad(each.sum(), x)[0] for each in (values, expected))
    torch.testing.assert_close(*gradients)


def rotation_matrix(t: Any) -> Any:
    """A real symmetric matrix."""
    return qml.math.stack([qml.math.stack([t[0], t[1]]), qml.math.stack([t[1], -t[0]])])


def variance(t: Any) -> Any:
    return qml.var(qml.Hermitian(rotation_matrix(t), 0))


def evolved(t: Any) -> Any:
    qml.evolve(qml.Hermitian(rotation_matrix(t), 0), 0.3)
    return qml.expval(qml.Z(0))


@pytest.mark.parametrize(
    ("function", "library"),
    [(variance, "torch"), (variance, "autograd"), (variance, "jax"), (evolved, "torch")],
)
def test_gradients_that_pennylane_would_lose_are_refused(function: Any, library: str, exact_jax: Any) -> None:
    qnode, at = qml.QNode(function, device()), [0.4, -0.7]
    slopes: dict[str, Callable[[], Any]] = {
        "torch": lambda: qnode(torch.tensor(at, dtype=torch.float64, requires_grad=True)).backward(),
        "autograd": lambda: qml.grad(qnode)(pnp.array(at, requires_grad=True)),
        "jax": lambda: exact_jax.grad(qnode)(exact_jax.numpy.array(at)),
    }
    with pytest.raises(DeviceError):
        slopes[library]()


ANGLE = 0.3
MATRIX = np.array([[0, 1], [1, 0]])


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape_cache, "REPEATS", 2)


# --- tapes that come again are answered from a record, and never from a wrong one ---


def compare(function: Callable[..., Any], fused: Any, *shapes: tuple[int, ...], seed: int = 0) -> None:
    arguments, pairs = draws(*shapes, seed=seed), []
    for each in (fused, qml.device("default.qubit", wires=WIRES)):
        results = qml.QNode(function, each)(*arguments)
        pairs.append((results, torch.autograd.grad(loss(results), arguments, materialize_grads=True)))
    torch.testing.assert_close(*pairs, rtol=1e-9, atol=1e-10)


def test_constants_of_a_tape_that_comes_again_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        qml.RY(x, wires=0)
        qml.RX(ANGLE, wires=0)
        qml.QubitUnitary(MATRIX, wires=0)
        return qml.probs(wires=0), qml.state()

    fused = device()
    for angle, matrix in ((0.3, MATRIX), (0.9, MATRIX), (0.9, np.diag([1, 1j]))):
        monkeypatch.setitem(globals(), "ANGLE", angle)
        monkeypatch.setitem(globals(), "MATRIX", matrix)
        for seed in range(3):
            compare(function, fused, (), seed=seed)
            compare(function, fused, (4,), seed=seed)
    assert len(fused._cache._records.ways) == 4


def test_a_quantum_function_has_no_operators_of_another_thread() -> None:
    """PennyLane has one queue for all: a thread waits until the other has recorded its own."""
    config = qml.devices.ExecutionConfig(interface=qml.math.Interface.TORCH, gradient_method="backprop")
    fused, result = device(), []
    gates = [qml.PauliRot(torch.tensor(0.3), "XY", [0, 1]), qml.adjoint(qml.QubitUnitary(MATRIX, 2))]
    arguments = qml.tape.QuantumScript(gates, [qml.expval(qml.Z(0)), qml.expval(qml.Hermitian(MATRIX, 1))])
    for step in (fused.preprocess_transforms(config), lambda tapes: fused.execute(tapes, config)):
        other = threading.Thread(target=lambda step=step: result.append(step((arguments,))), daemon=True)
        with qml.queuing.AnnotatedQueue() as queue:
            other.start()
            other.join(0.2)
            assert qml.QueuingManager.active_context() is queue and not queue.queue
        other.join()
    assert len(result) == 2


class Own(qml.operation.Operation):
    """An operation whose decomposition depends on what no key has."""

    num_wires = 1
    num_params = 1

    @staticmethod
    def compute_decomposition(angle: Any, wires: Any) -> list[Any]:
        return [qml.RX(angle * ANGLE, wires=wires)]


@pytest.mark.parametrize("gate", [lambda x: Own(x, wires=0), lambda x: qml.adjoint(Own(x, wires=0))])
def test_what_no_key_knows_is_not_recorded(gate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        gate(x)
        return qml.expval(qml.Z(0))

    fused = device()
    for seed, angle in enumerate((0.3, 0.3, 0.3, 0.9)):
        monkeypatch.setitem(globals(), "ANGLE", angle)
        compare(function, fused, (), seed=seed)
    assert not fused._cache._records.ways
