"""What PennyLane makes of QNodes besides calls and gradients, on ketscale.fused and on default.qubit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
from pennylane import numpy as pnp


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
