"""Programs of the kinds that PennyLane's demonstrations show, on ketscale.fused and on default.qubit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx
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


def approximate_optimisation(device: Any) -> list[Any]:
    """Two layers of QAOA for the largest cut of a ring with a chord."""
    graph = networkx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
    cost, mixer = qml.qaoa.maxcut(graph)

    @qml.qnode(device)
    def circuit(angles: Any) -> Any:
        for wire in range(4):
            qml.Hadamard(wire)
        qml.layer(lambda g, b: (qml.qaoa.cost_layer(g, cost), qml.qaoa.mixer_layer(b, mixer)), 2, *angles)
        return qml.expval(cost)

    angles = pnp.array([[0.3, 0.5], [0.7, 0.2]], requires_grad=True)
    return [circuit(angles), qml.grad(circuit)(angles)]


def kernel(device: Any) -> list[Any]:
    """The kernel matrix of an embedding: the chance to return to |0...0>."""

    @qml.qnode(device)
    def returned(a: Any, b: Any) -> Any:
        qml.IQPEmbedding(a, wires=range(4))
        qml.adjoint(qml.IQPEmbedding)(b, wires=range(4))
        return qml.probs(wires=range(4))

    rows = np.random.default_rng(0).normal(size=(3, 4))
    return [qml.kernels.square_kernel_matrix(rows, lambda a, b: returned(a, b)[0])]


def data_reuploading(device: Any) -> list[Any]:
    """The fidelity with a class's state, and its gradient over a batch."""

    @qml.qnode(device)
    def fidelity(weights: Any, x: Any) -> Any:
        for w in weights:
            qml.Rot(*(w + x).T, wires=0)
        return qml.expval(qml.Hermitian(np.array([[1, 0], [0, 0]]), wires=[0]))

    x = pnp.array(np.random.default_rng(1).normal(size=(5, 3)), requires_grad=False)
    weights = pnp.array(np.random.default_rng(2).normal(size=(3, 3)), requires_grad=True)
    return [fidelity(weights, x), qml.grad(lambda w: pnp.sum(fidelity(w, x)))(weights)]


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


def adaptive_ansatz(device: Any) -> list[Any]:
    """One step that chooses the excitation with the largest gradient."""
    hamiltonian = qml.dot([-0.4, 0.2, 0.3], [qml.Z(0), qml.X(0) @ qml.X(1), qml.Z(1) @ qml.Z(2)])

    @qml.qnode(device)
    def circuit() -> Any:
        qml.BasisState(np.array([1, 0, 1, 0]), wires=range(4))
        return qml.expval(hamiltonian)

    pool = [
        qml.SingleExcitation(pnp.array(0.0, requires_grad=True), wires=[0, 1]),
        qml.DoubleExcitation(pnp.array(0.0, requires_grad=True), wires=range(4)),
    ]
    grown, energy, slope = qml.AdaptiveOptimizer().step_and_cost(circuit, pool)
    return [energy, slope, grown()]


def fisher_information(device: Any) -> list[Any]:
    @qml.qnode(device)
    def circuit(w: Any) -> Any:
        qml.RX(w[0], wires=0)
        qml.CNOT(wires=[0, 1])
        qml.RY(w[1], wires=1)
        return qml.expval(qml.Z(1))

    w = pnp.array([0.3, 0.7], requires_grad=True)
    ways = (qml.gradients.classical_fisher, qml.gradients.quantum_fisher, qml.adjoint_metric_tensor)
    return [way(circuit)(w) for way in ways]


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


def measured_twice(device: Any) -> list[Any]:
    """A wire that is reset and measured again, and what is computed from both outcomes."""

    @qml.qnode(device)
    def circuit(x: Any) -> Any:
        qml.RX(x, wires=0)
        first = qml.measure(0, reset=True)
        qml.RY(x, wires=0)
        second = qml.measure(0)
        qml.cond(first & ~second, qml.X)(1)
        qml.cond(first + second == 1, qml.RZ)(x, wires=1)
        return qml.expval(qml.Z(1)), qml.probs(op=[first, second]), qml.expval(3 * first - second)

    return [*circuit(0.7)]


def graph_decomposition(device: Any) -> list[Any]:
    @qml.qnode(device)
    def circuit(w: Any) -> Any:
        qml.StronglyEntanglingLayers(w, wires=range(3))
        qml.QFT(range(3))
        qml.ctrl(qml.SX(0), control=1)
        return qml.probs(wires=range(3))

    qml.decomposition.enable_graph()
    try:
        return [circuit(np.random.default_rng(0).normal(size=(2, 3, 3)))]
    finally:
        qml.decomposition.disable_graph()


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
    approximate_optimisation,
    kernel,
    data_reuploading,
    teleportation,
    natural_gradient,
    hessian,
    adaptive_ansatz,
    fisher_information,
    circuit_cutting,
    measured_twice,
    graph_decomposition,
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
