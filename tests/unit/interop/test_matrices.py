"""Matrices that are not unitary act as they are given, or are refused: PennyLane's decompositions make others of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from pennylane.exceptions import DeviceError
from qiskit import QuantumCircuit
from qiskit.circuit.library import UnitaryGate

from ketscale import from_qiskit, from_qnode
from ketscale.errors import UserError

# PennyLane warns of torch's numbers in a QNode of autograd.
pytestmark = pytest.mark.filterwarnings("ignore")

WIRES = 4


def drawn(size: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(size, size)) + 1j * generator.normal(size=(size, size))) / size


HALF = np.diag([1, 0.5])
KRAUS = np.array([[0, 0.3**0.5], [0, 0]])
HERMITIAN = np.array([[1, 0.2j], [-0.2j, 0.4]])
GROWING = qml.X(0) + 1j * qml.Z(0)  # no Hermitian generator
EXACT = qml.Rot(0.3, 0.7, 1.1, wires=0).matrix()

# From what makes an array of NumPy's a matrix.
GIVEN: dict[str, Callable[[Any], Any]] = {
    "Kraus": lambda m: qml.QubitUnitary(m(KRAUS), 0),
    "two wires": lambda m: qml.QubitUnitary(m(drawn(4)), [2, 0]),
    "three wires": lambda m: qml.QubitUnitary(m(drawn(8)), [0, 1, 2]),
    "batch": lambda m: qml.QubitUnitary(m(np.stack([drawn(2), HALF])), 0),
    "controlled by zeros": lambda m: qml.ctrl(qml.QubitUnitary(m(drawn(2)), 1), [0, 2], control_values=[0, 1]),
    "controlled, two wires": lambda m: qml.ControlledQubitUnitary(m(drawn(4)), [0, 1, 2]),
    "adjoint of controlled": lambda m: qml.adjoint(qml.ctrl(qml.QubitUnitary(m(drawn(2)), 0), 1)),
    "power": lambda m: qml.pow(qml.QubitUnitary(m(drawn(2)), 0), 2),
    "inverse": lambda m: qml.pow(qml.QubitUnitary(m(drawn(2)), 0), -1),
    "product": lambda m: qml.prod(qml.QubitUnitary(m(drawn(2)), 0), qml.RX(0.3, 1)),
    "controlled product": lambda m: qml.ctrl(qml.prod(qml.QubitUnitary(m(drawn(2)), 0), qml.RX(0.3, 1)), 2),
    "select": lambda m: qml.Select([qml.QubitUnitary(m(drawn(2)), 0), qml.X(0)], control=2),
    "controlled projector": lambda m: qml.ctrl(qml.Projector([1], 0), 1),
    "controlled growth": lambda m: qml.ctrl(qml.evolve(GROWING, 0.3), 1),
    "adjoint of a power": lambda m: qml.adjoint(qml.pow(qml.adjoint(qml.evolve(GROWING, 0.3)), -1)),
    "adjoint of a matrix' growth": lambda m: qml.adjoint(qml.evolve(qml.QubitUnitary(m(drawn(2)), 0), 0.3)),
    "adjoint of evolution": lambda m: qml.adjoint(qml.evolve(qml.Hermitian(m(HERMITIAN), 0), 0.3)),
}  # fmt: skip


def program(operation: Callable[[], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        for wire, factor in enumerate((1, 1.3, 0.7)):
            qml.RY(factor * x, wires=wire)
        qml.CNOT(wires=[1, 3])
        operation()
        qml.RX(0.3, wires=0)
        return qml.expval(qml.Z(0) @ qml.X(1)), qml.probs(wires=[0, 1]), qml.var(qml.X(2)), qml.state()

    return function


def joined(results: Any) -> torch.Tensor:
    return torch.cat([torch.as_tensor(each).reshape(-1).to(torch.complex128) for each in results])


def doors(function: Callable[[Any], Any]) -> dict[str, Callable[[Any], Any]]:
    default, fused = (qml.device(name, wires=WIRES) for name in ("default.qubit", "ketscale.fused"))
    numpy = qml.QNode(function, fused, interface="autograd", diff_method="adjoint")
    return {
        "default.qubit": qml.QNode(function, default),
        "device": qml.QNode(function, fused),
        "adjoint": lambda x: numpy(qml.numpy.array(float(x), requires_grad=True)),
        "once": from_qnode(qml.QNode(function, default)),
        "always": from_qnode(qml.QNode(function, default), trace="always"),
    }


@pytest.mark.parametrize("name", GIVEN)
def test_a_matrix_acts_as_it_is_given(name: str) -> None:
    """The matrices of each library in turn."""
    matrix = (np.array, torch.tensor)[list(GIVEN).index(name) % 2]
    ways = doors(program(lambda: GIVEN[name](matrix)))
    for value in (0.9, -0.4):
        found = {}
        for way, qnode in ways.items():
            x = torch.tensor(value, dtype=torch.float64, requires_grad=True)
            results = joined(qnode(x))
            total = (results * torch.arange(1, len(results) + 1)).real.sum()
            slope = 0 if way == "adjoint" else torch.autograd.grad(total, x)[0]
            found[way] = results.detach(), slope
        for way, (results, slope) in found.items():
            expected, theirs = found["default.qubit"]
            torch.testing.assert_close(results, expected, rtol=0, atol=1e-9, msg=way)
            assert way == "adjoint" or float(slope) == pytest.approx(float(theirs), abs=1e-8), way


@pytest.mark.parametrize("matrix", [np.array, torch.tensor], ids=["NumPy", "torch"])
def test_a_matrix_in_single_precision_is_right_to_single_precision(matrix: Callable[[Any], Any]) -> None:
    """As it is given, or as the unitary matrix that it is rounded from, which is decomposed."""
    x = torch.tensor(0.9, dtype=torch.float64)
    exact = joined(doors(program(lambda: qml.QubitUnitary(EXACT, 0)))["default.qubit"](x))
    for way, qnode in doors(program(lambda: qml.QubitUnitary(matrix(EXACT.astype(np.complex64)), 0))).items():
        torch.testing.assert_close(joined(qnode(x)), exact, rtol=0, atol=1e-6, msg=way)


def test_a_record_follows_a_matrix_that_ceases_to_be_unitary() -> None:
    def function(x: Any, m: Any) -> Any:
        qml.RY(x, wires=0)
        qml.ctrl(qml.QubitUnitary(m, wires=1), control=0)
        return qml.state()

    x = torch.tensor(0.9, dtype=torch.float64)
    ways = doors(function)
    del ways["adjoint"]
    for number in range(10):
        matrix = torch.tensor(np.diag([1, 1 - 0.04 * number]))
        for name, qnode in ways.items():
            after = qnode(x, matrix).reshape(-1)[[0, 8]]
            assert after == pytest.approx([np.cos(0.45), np.sin(0.45)], abs=1e-12), name


@pytest.mark.parametrize(
    "operation, error, words",
    [
        (lambda: qml.Projector([1], 0), DeviceError, "Projector.*not supported with ketscale.fused"),
        (lambda: qml.DiagonalQubitUnitary(torch.tensor([1, 0.5]), 0), ValueError, "must be unitary"),
        (lambda: qml.ctrl(qml.DiagonalQubitUnitary(np.array([1, 0.5]), 0), 1), ValueError, "must be unitary"),
    ],
)
def test_what_default_qubit_refuses_or_normalises_is_refused(
    operation: Callable[[], Any], error: type[Exception], words: str
) -> None:
    ways = doors(program(operation))
    for name in set(ways) - {"default.qubit"}:
        with pytest.raises(error, match=words):
            ways[name](torch.tensor(0.9, dtype=torch.float64))


def test_qiskit_synthesises_no_matrix_that_is_not_unitary() -> None:
    for qubits in (1, 2, 3):
        circuit = QuantumCircuit(3)
        circuit.append(UnitaryGate(drawn(2**qubits), check_input=False), range(qubits))
        with pytest.raises(UserError, match="not unitary"):
            from_qiskit(circuit)


TURNS: dict[str, Callable[[Any], Any]] = {
    "RX": lambda t: qml.RX(t, 0),
    "Rot": lambda t: qml.Rot(t, 2 * t, 0.3, 0),
    "IsingXX": lambda t: qml.IsingXX(t, [0, 1]),
    "CRZ": lambda t: qml.CRZ(t, [0, 1]),
    "ControlledPhaseShift": lambda t: qml.ControlledPhaseShift(t, [0, 1]),
    "ctrl of RX": lambda t: qml.ctrl(qml.RX(t, 2), [0, 1]),
}


@pytest.mark.parametrize("name", TURNS)
def test_metric_tensors_and_natural_gradients(name: str) -> None:
    """PennyLane measures them with controlled generators, which are projectors."""

    def function(w: Any) -> Any:
        for wire in range(3):
            qml.RY(0.3 + 0.2 * wire, wires=wire)
        TURNS[name](w[0])
        qml.RX(w[1], wires=0)
        qml.CNOT(wires=[0, 1])
        TURNS[name](w[2])
        return qml.expval(qml.Z(0) @ qml.Z(1))

    w = qml.numpy.array([0.5, 0.6, 0.7], requires_grad=True)
    default, fused = (
        qml.QNode(function, qml.device(device, wires=4)) for device in ("default.qubit", "ketscale.fused")
    )
    for approx in (None, "block-diag", "diag"):
        theirs, mine = (qml.metric_tensor(each, approx=approx)(w) for each in (default, fused))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
    theirs, mine = (qml.QNGOptimizer(0.1, lam=0.01).step(each, w) for each in (default, fused))
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-8)
