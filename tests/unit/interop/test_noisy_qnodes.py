"""Noisy QNodes on the device and by `from_qnode`, against default.mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pennylane as qml
import pytest
import torch
from pennylane.exceptions import DeviceError

import ketscale
from ketscale.errors import UserError

FLIP = [np.sqrt(0.9) * np.eye(2), np.sqrt(0.1) * np.array([[0, 1], [1, 0]])]
MEASURED: dict[str, Callable[[], Any]] = {
    "expval": lambda: qml.expval(0.3 * qml.Z(0) + qml.X(1) @ qml.Z(2)),
    "matrix": lambda: qml.expval(qml.Hermitian(np.array([[1, 0.5], [0.5, -1]]), wires=0)),
    "probs": lambda: qml.probs(wires=[2, 0]),
    "var": lambda: qml.var(qml.Z(1)),
    "state": lambda: qml.state(),
    "density": lambda: qml.density_matrix(wires=[1]),
    "purity": lambda: qml.purity(wires=[0]),
    "entropy": lambda: qml.vn_entropy(wires=[0]),
}


def circuit(x: Any, strength: Any) -> None:
    """All kinds of channels."""
    qml.RX(x, wires=0)
    qml.AmplitudeDamping(strength, wires=0)
    qml.CNOT([0, 1])
    qml.RY(0.3, wires=1)
    qml.DepolarizingChannel(0.1, wires=1)
    qml.PauliError("XY", 0.2, wires=[0, 1])
    qml.ThermalRelaxationError(0.1, 50.0, 60.0, 10.0, wires=0)
    qml.QubitChannel(FLIP, wires=1)
    qml.Toffoli([0, 1, 2])
    qml.PhaseDamping(strength, wires=2)


def node(device: str, measured: str, interface: str = "torch", **options: Any) -> qml.QNode:
    def function(x: Any, strength: Any) -> Any:
        circuit(x, strength)
        return MEASURED[measured]()

    return qml.QNode(function, qml.device(device, wires=3, **options), interface=interface)


@pytest.mark.parametrize("measured", MEASURED)
@pytest.mark.parametrize("batch", [None, 3])
def test_the_device_and_from_qnode_give_what_default_mixed_does(measured: str, batch: int | None) -> None:
    x = torch.linspace(0.4, 1.4, batch or 1, dtype=torch.float64)
    arguments = x if batch else x[0], torch.tensor(0.2, dtype=torch.float64)
    expected = node("default.mixed", measured)(*arguments)
    actual = node("ketscale.fused", measured)
    for _ in range(9):  # from the eighth call on the tape is known
        torch.testing.assert_close(actual(*arguments), expected, rtol=0, atol=1e-12)
    converted = ketscale.from_qnode(node("default.mixed", measured))
    torch.testing.assert_close(converted(*arguments), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("measured", MEASURED)
def test_jax_maps_and_differentiates_noisy_qnodes(measured: str, exact_jax: Any) -> None:
    x, strength = np.linspace(0.4, 1.4, 3), np.array([0.1, 0.2, 0.3])
    ours, theirs = (node(device, measured, "jax") for device in ("ketscale.fused", "default.mixed"))
    np.testing.assert_allclose(ours(x, 0.2), theirs(x, 0.2), rtol=0, atol=1e-12)
    mapped = exact_jax.jit(exact_jax.vmap(ours))(x, strength)
    expected = [theirs(*each) for each in zip(x, strength, strict=True)]
    np.testing.assert_allclose(mapped, expected, rtol=0, atol=1e-12)

    def summed(x: Any, strength: Any) -> Any:  # default.mixed has no derivatives here
        return (ours(x, strength) * weight).sum().real

    point = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (0.4, 0.2)]
    values = node("ketscale.fused", measured)(*point)
    weight = torch.arange(1.0, values.numel() + 1).reshape(values.shape).numpy()
    slopes = torch.autograd.grad((values * torch.tensor(weight)).sum().real, point)
    gradient = exact_jax.jit(exact_jax.grad(summed, (0, 1)))(0.4, 0.2)
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-12)


@pytest.mark.parametrize("measured", ["expval", "matrix", "var", "purity"])
def test_gradients_are_those_of_differences(measured: str) -> None:
    arguments = tuple(torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.4, 0.2))
    assert torch.autograd.gradcheck(node("ketscale.fused", measured), arguments)
    assert torch.autograd.gradcheck(ketscale.from_qnode(node("default.mixed", measured)), arguments)
    by_product = qml.grad(lambda *given: node("ketscale.fused", measured, "autograd")(*given))
    numbers = [qml.numpy.array(float(each.detach()), requires_grad=True) for each in arguments]
    expected = torch.autograd.grad(node("ketscale.fused", measured)(*arguments), arguments)
    np.testing.assert_allclose(by_product(*numbers), torch.stack(expected), atol=1e-12)


STATE = np.array([[0.6, 0, 0.8j, 0], [0, 0.6, 0, 0.8]])


def started(device: str, interface: str, of_basis: bool = False) -> qml.QNode:
    """A prepared state, and then a channel."""

    @qml.qnode(qml.device(device, wires=2), interface=interface)
    def prepared(state: Any) -> Any:
        qml.BasisState(np.array([0, 1]), wires=[1, 0]) if of_basis else qml.StatePrep(state, wires=[1, 0])
        qml.AmplitudeDamping(0.1, wires=0)
        qml.RX(0.3, wires=1)
        return qml.expval(qml.Z(0)), qml.density_matrix([0, 1])

    return prepared


@pytest.mark.parametrize("given", [STATE, STATE[0], None])
def test_circuits_with_channels_begin_with_prepared_states(given: Any, exact_jax: Any) -> None:
    state, of_basis = (STATE[0], True) if given is None else (given, False)
    expected = started("default.mixed", "numpy", of_basis)(state)
    for interface, made in {"torch": torch.tensor, "jax": exact_jax.numpy.array, "numpy": np.array}.items():
        found = started("ketscale.fused", interface, of_basis)(made(state))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    converted = ketscale.from_qnode(started("default.mixed", "torch", of_basis), trace="always")
    for one, other in zip(converted(torch.tensor(state)), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_a_prepared_state_without_channels_has_a_density_matrix() -> None:
    @qml.qnode(qml.device("default.mixed", wires=1), interface="torch")
    def prepared() -> Any:
        qml.StatePrep(np.array([0.6, 0.8j]), wires=0)
        return qml.state()

    torch.testing.assert_close(ketscale.from_qnode(prepared)(), prepared(), rtol=0, atol=1e-12)


def trained(device: str, interface: str) -> Any:
    """A channel whose strength is differentiated and has no entry of its own."""

    @qml.qnode(qml.device(device, wires=1), interface=interface)
    def function(strength: Any) -> Any:
        qml.PauliError("X", strength, wires=0)
        return qml.expval(qml.Z(0))

    if interface == "jax":
        return jax.grad(function)(0.1)
    if interface == "autograd":
        return qml.grad(function)(qml.numpy.array(0.1, requires_grad=True))
    called = ketscale.from_qnode(function, trace="always") if device == "default.mixed" else function
    return called(torch.tensor(0.1, requires_grad=True))


def with_matrix(device: str, interface: str) -> Any:
    """A matrix that may change, and a channel."""

    @qml.qnode(qml.device(device, wires=1), interface=interface)
    def function(matrix: Any) -> Any:
        qml.QubitUnitary(matrix, wires=0)
        qml.BitFlip(0.1, wires=0)
        return qml.expval(qml.Z(0))

    if device == "default.mixed":
        return ketscale.from_qnode(function)(torch.eye(2))
    return function(torch.eye(2)) if interface == "torch" else jax.jit(function)(np.eye(2))


def test_default_mixed_without_channels_has_density_matrices_too() -> None:
    def function() -> Any:
        qml.Hadamard(0)
        return qml.state()

    expected = qml.QNode(function, qml.device("default.mixed", wires=1), interface="torch")
    torch.testing.assert_close(ketscale.from_qnode(expected)(), expected(), rtol=0, atol=1e-12)


def test_noise_that_pennylane_adds_and_readout_errors(exact_jax: Any) -> None:
    def function(x: float) -> Any:
        qml.RX(x, wires=0)
        qml.CNOT([0, 1])
        return qml.expval(qml.Z(1)), qml.probs(wires=0)

    def flipped(x: float) -> Any:
        qml.RX(x, wires=0)
        qml.CNOT([0, 1])
        qml.BitFlip(0.05, 0)
        qml.BitFlip(0.05, 1)
        return qml.expval(qml.Z(1)), qml.probs(wires=0)

    model = qml.NoiseModel({qml.noise.op_eq(qml.RX): qml.noise.partial_wires(qml.AmplitudeDamping, 0.1)})
    actual, expected = (qml.device(name, wires=2) for name in ("ketscale.fused", "default.mixed"))
    for one, other in zip(
        *(qml.add_noise(qml.QNode(function, d), model)(0.7) for d in (actual, expected)), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)
    confused = qml.QNode(function, qml.device("ketscale.fused", wires=2, readout_prob=0.05))
    for given in (0.7, exact_jax.numpy.array(0.7)):
        for one, other in zip(confused(given), qml.QNode(flipped, expected)(0.7), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def test_shots_are_drawn_from_density_matrices() -> None:
    actual = qml.set_shots(node("ketscale.fused", "probs", "numpy", seed=1), 40_000)
    exact = node("default.mixed", "probs", "numpy")
    np.testing.assert_allclose(actual(0.4, 0.2), exact(0.4, 0.2), atol=6 / 2 / 200)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda: qml.device("ketscale.fused", wires=1, readout_prob=1.5), DeviceError, "from 0 to 1"),
        (lambda: node("ketscale.fused", "purity", readout_prob=0.1)(0.1, 0.1), DeviceError, "is of outcomes"),
        (lambda: ketscale.from_qnode(node("default.mixed", "probs", readout_prob=0.1)), UserError, "readout_prob"),
        (lambda: node("ketscale.fused", "purity", "jax", readout_prob=0.1)(0.1, 0.1), DeviceError, "is of outcomes"),
        (lambda: started("ketscale.fused", "torch")(torch.tensor(STATE, requires_grad=True)), UserError, "not differentiated"),
        (lambda: jax.jit(started("ketscale.fused", "jax"))(STATE), UserError, "not differentiated"),
        (lambda: trained("ketscale.fused", "torch"), UserError, "numbers that are not trained"),
        (lambda: trained("ketscale.fused", "jax"), UserError, "numbers that are not trained"),
        (lambda: trained("ketscale.fused", "autograd"), UserError, "numbers that are not trained"),
        (lambda: trained("default.mixed", "torch"), UserError, "numbers that are not trained"),
        (lambda: with_matrix("ketscale.fused", "torch"), UserError, "by its matrix"),
        (lambda: with_matrix("ketscale.fused", "jax"), UserError, "by its matrix"),
        (lambda: with_matrix("default.mixed", "torch"), UserError, "by its matrix"),
        (lambda: node("ketscale.fused", "expval")(0.1, torch.full((3,), 0.1)), UserError, "strength has a batch"),
        (lambda: node("ketscale.fused", "expval", "jax")(0.1, np.full(3, 0.1)), UserError, "strength has a batch"),
    ],
)  # fmt: skip
def test_what_noisy_qnodes_do_not_do_is_said(
    ask: Callable[[], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ask()


def test_the_device_takes_trajectories() -> None:
    def function(angle: Any) -> Any:
        qml.RY(angle, 0)
        qml.AmplitudeDamping(0.2, 0)
        qml.CNOT([0, 1])
        qml.DepolarizingChannel(0.1, 1)
        return qml.expval(qml.Z(0) + 0.5 * qml.X(0) @ qml.X(1)), qml.expval(qml.Z(1))

    device = qml.device("ketscale.fused", wires=2, trajectories=4000)
    angle = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    results = qml.QNode(function, device, interface="torch")(angle)
    exact = qml.QNode(function, qml.device("default.mixed", wires=2))(angle)
    # Values are between -1.5 and 1.5.
    for one, other in zip(results, exact, strict=True):
        assert float((one - other).detach().abs()) < 5 * 1.5 / 4000**0.5
    (gradient,) = torch.autograd.grad(results[1], angle)
    assert float(gradient) == pytest.approx(float(torch.autograd.grad(exact[1], angle)[0]), abs=0.1)

    def outcomes(angle: Any) -> Any:
        qml.RY(angle, 0)
        qml.AmplitudeDamping(0.2, 0)
        return qml.probs(wires=[0, 1])

    with pytest.raises(UserError, match="expectation values of Pauli words"):
        qml.QNode(outcomes, device, interface="torch")(angle)
    with pytest.raises(DeviceError, match="leave out diff_method"):
        qml.QNode(function, device, diff_method="parameter-shift")(angle)
    with pytest.raises(DeviceError, match="interface of torch"):
        qml.QNode(function, device)(jax.numpy.array(0.7))
