"""Programs of the kinds that PennyLane's demonstrations show, on ketscale.fused and on default.qubit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
from pennylane import numpy as pnp


def variational_eigensolver(device: Any) -> list[Any]:
    """Ten steps of gradient descent on the energy of hydrogen, STO-3G at 1.4 bohr (McArdle et al., RMP 92, 015003)."""
    words = ["II", "ZI", "IZ", "ZZ", "XX"]
    energies = [-1.0523732, 0.39793742, -0.39793742, -0.0112801, 0.18093119]
    hamiltonian = qml.Hamiltonian(energies, [qml.pauli.string_to_pauli_word(word) for word in words])

    @qml.qnode(device)
    def energy(angles: Any) -> Any:
        qml.BasisState(np.array([0, 1]), wires=[0, 1])
        qml.DoubleExcitation(0.0, wires=[0, 1, 2, 3])
        qml.SingleExcitation(angles[0], wires=[0, 1])
        qml.RZ(angles[1], wires=0)
        return qml.expval(hamiltonian)

    optimiser, angles = qml.GradientDescentOptimizer(0.5), pnp.array([0.1, 0.2], requires_grad=True)
    energies = []
    for _ in range(10):
        angles, value = optimiser.step_and_cost(energy, angles)
        energies.append(value)
    return energies


def teleportation(device: Any) -> list[Any]:
    @qml.qnode(device)
    def circuit(theta: Any) -> Any:
        qml.U3(theta, 0.3, 0.7, wires=0)
        qml.Hadamard(1)
        qml.CNOT(wires=[1, 2])
        qml.CNOT(wires=[0, 1])
        qml.Hadamard(0)
        first, second = qml.measure(0), qml.measure(1)
        qml.cond(second, qml.X)(2)
        qml.cond(first, qml.Z)(2)
        return qml.density_matrix(wires=2)

    return [circuit(0.4)]


def natural_gradient(device: Any) -> list[Any]:
    @qml.qnode(device)
    def circuit(w: Any) -> Any:
        qml.RY(np.pi / 4, wires=0)
        qml.RZ(w[0], wires=0)
        qml.CNOT(wires=[0, 1])
        qml.RY(w[1], wires=1)
        qml.RX(w[2], wires=0)
        return qml.expval(qml.X(0) @ qml.Z(1))

    w = pnp.array([0.4, -0.7, 1.1], requires_grad=True)
    metric = qml.metric_tensor(circuit, approx="block-diag")(w)
    return [metric, qml.QNGOptimizer(0.1).step(circuit, w)]


def hessian(device: Any) -> list[Any]:
    @qml.qnode(device, diff_method="parameter-shift", max_diff=2)
    def circuit(w: Any) -> Any:
        qml.RY(w[0], wires=0)
        qml.CRX(w[1], wires=[0, 1])
        return qml.expval(qml.Z(1))

    w = pnp.array([0.4, -0.7], requires_grad=True)
    return [qml.jacobian(qml.grad(circuit))(w)]


def circuit_cutting(device: Any) -> list[Any]:
    @qml.cut_circuit
    @qml.qnode(device)
    def circuit(x: Any) -> Any:
        qml.RX(x, wires=0)
        qml.RY(0.9, wires=1)
        qml.CNOT(wires=[0, 1])
        qml.WireCut(1)
        qml.CNOT(wires=[1, 2])
        return qml.expval(qml.Z(0) @ qml.Z(2))

    return [circuit(pnp.array(0.3))]


def transformed(device: Any) -> list[Any]:
    """Transforms and inspections of QNodes do not care about the device."""

    @qml.transforms.merge_rotations
    @qml.transforms.cancel_inverses
    @qml.qnode(device)
    def circuit(x: Any) -> Any:
        qml.RX(x, wires=0)
        qml.RX(2 * x, wires=0)
        qml.Hadamard(1)
        qml.Hadamard(1)
        qml.Snapshot("midway")
        qml.CNOT(wires=[0, 1])
        return qml.expval(qml.Z(1)), qml.var(qml.X(0))

    assert "RX" in qml.draw(circuit)(0.3)
    return [*circuit(0.3), np.array(qml.specs(circuit)(0.3)["resources"].num_gates)]


DEMOS = [
    variational_eigensolver,
    teleportation,
    natural_gradient,
    hessian,
    circuit_cutting,
    transformed,
]


# autograd through default.qubit casts complex numbers; some templates still use PennyLane's old names.
@pytest.mark.filterwarnings(
    "ignore:Casting complex values to real", "ignore::pennylane.exceptions.PennyLaneDeprecationWarning"
)
@pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.__name__)
def test_a_demonstration_gives_the_same(demo: Callable[[Any], list[Any]]) -> None:
    mine, theirs = (demo(qml.device(name, wires=5)) for name in ("ketscale.fused", "default.qubit"))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
