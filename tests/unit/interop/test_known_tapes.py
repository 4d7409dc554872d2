"""Tapes that come again are answered from a record, with what default.qubit gives, and never from a wrong one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch

from ketscale.interop import known, tape
from ketscale.interop.device import FusedDevice
from ketscale.interop.entries import Entries, Picked
from tests.unit.interop.test_doors import drawn
from tests.unit.interop.test_from_qnode import loss

WIRES = 3
ANGLE = 0.3
MATRIX = np.array([[0, 1], [1, 0]])


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "REPEATS", 2)


def template(x: Any, w: Any) -> Any:
    qml.AngleEmbedding(x, wires=range(WIRES), rotation="Y")
    qml.StronglyEntanglingLayers(w, wires=range(WIRES))
    qml.RX(ANGLE, wires=0)
    qml.ctrl(qml.RY, control=[0, 1])(w[0, 0, 0], wires=2)
    qml.GlobalPhase(w[0, 0, 1])
    return [qml.expval(qml.Z(i)) for i in range(WIRES)]


def prepared(x: Any, w: Any) -> Any:
    qml.AmplitudeEmbedding(torch.sin(x), wires=[0, 1], pad_with=0.3, normalize=True)
    qml.BasisState(np.array([1]), wires=[2])
    qml.Rot(*w[0, 0], wires=0)
    return qml.probs(wires=[0, 2]), qml.expval(qml.Hamiltonian([0.4, ANGLE], [qml.Z(0), qml.X(1) @ qml.Y(2)]))


def matrices(x: Any, w: Any) -> Any:
    qml.RY(x[..., 0], wires=0)
    qml.QubitUnitary(MATRIX, wires=1)
    qml.DoubleExcitation(w[0, 0, 0], wires=[0, 1, 2, 3])
    qml.BasisEmbedding([1, 0], wires=[1, 2])
    return qml.state()


def compare(function: Callable[..., Any], device: Any, *shapes: tuple[int, ...], seed: int = 0) -> None:
    arguments, pairs = drawn(*shapes, seed=seed), []
    for each in (device, qml.device("default.qubit", wires=WIRES + 1)):
        results = qml.QNode(function, each)(*arguments)
        pairs.append((results, torch.autograd.grad(loss(results), arguments, materialize_grads=True)))
    torch.testing.assert_close(*pairs, rtol=1e-9, atol=1e-10)


# AmplitudeEmbedding looks at its numbers: whether they are normalised.
@pytest.mark.parametrize(("function", "records"), [(template, 3), (prepared, 0), (matrices, 3)])
def test_calls_with_other_numbers_batches_and_constants(
    function: Callable[..., Any], records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FusedDevice(wires=WIRES + 1)
    for seed in range(7):
        compare(function, device, (*[(), (4,), (2,)][seed % 3], WIRES), (1, WIRES, 3), seed=seed)
    assert len(device._known._records.ways) == records
    monkeypatch.setitem(globals(), "ANGLE", 0.9)
    monkeypatch.setitem(globals(), "MATRIX", np.diag([1, 1j]))
    for seed in range(3):
        compare(function, device, (4, WIRES), (1, WIRES, 3), seed=seed)


def test_known_tapes_are_not_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    qnode = qml.QNode(template, FusedDevice(wires=WIRES))
    x, w = torch.randn(4, WIRES), torch.randn(1, WIRES, 3)
    drawn = qml.draw(qnode, level="device")(x, w)
    for factor in (1, 2, 3):
        qnode(factor * x, w)
    with monkeypatch.context() as patch:
        patch.setattr(qml.StronglyEntanglingLayers, "decomposition", None)
        qnode(x, w)
    assert qml.draw(qnode, level="device")(x, w) == drawn


def test_a_quantum_function_has_no_operators_of_another_thread() -> None:
    """PennyLane has one queue for all: a thread waits until the other has recorded its own."""
    config = qml.devices.ExecutionConfig(interface=qml.math.Interface.TORCH, gradient_method="backprop")
    device, found = FusedDevice(wires=WIRES), []
    gates = [qml.PauliRot(torch.tensor(0.3), "XY", [0, 1]), qml.adjoint(qml.QubitUnitary(MATRIX, 2))]
    given = qml.tape.QuantumScript(gates, [qml.expval(qml.Z(0)), qml.expval(qml.Hermitian(MATRIX, 1))])
    for step in (device.preprocess_transforms(config), lambda tapes: device.execute(tapes, config)):
        other = threading.Thread(target=lambda step=step: found.append(step((given,))), daemon=True)
        with qml.queuing.AnnotatedQueue() as queue:
            other.start()
            other.join(0.2)
            assert qml.QueuingManager.active_context() is queue and not queue.queue
        other.join()
    assert len(found) == 2


class Own(qml.operation.Operation):
    """An operation whose decomposition depends on what no key has."""

    num_wires = 1
    num_params = 1

    @staticmethod
    def compute_decomposition(angle: Any, wires: Any) -> list[Any]:
        return [qml.RX(angle * ANGLE, wires=wires)]


@pytest.mark.parametrize(
    "gate",
    [
        lambda x: Own(x, wires=0),
        lambda x: qml.adjoint(Own(x, wires=0)),
        # PennyLane binds numbers to it elsewhere.
        lambda x: qml.change_op_basis(qml.RY(0.2, wires=0), qml.RX(x, wires=0)),
    ],
)
def test_what_no_key_knows_is_not_recorded(gate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        gate(x)
        return qml.expval(qml.Z(0))

    device = FusedDevice(wires=WIRES)
    for seed, angle in enumerate((0.3, 0.3, 0.3, 0.9)):
        monkeypatch.setitem(globals(), "ANGLE", angle)
        compare(function, device, (), seed=seed)
    assert not device._known._records.ways


def test_numbers_of_a_circuit_go_where_its_tensors_are() -> None:
    """In place of a GPU there is torch's device without values."""
    there = torch.device("meta")
    tensors = [torch.zeros(1, dtype=torch.float64), torch.empty(2, dtype=torch.float64, device=there)]
    for chosen in ([0], [1, 2], [0, 2]):
        columns = [Entries(torch.tensor(place), torch.tensor(1.0), torch.tensor(0.0)) for place in chosen]
        found = Picked(columns, (), tensors, torch.float64, there)(tensors)
        assert found.device == there and found.shape == (len(chosen),)
    assert tape.vector([tensors[0], tensors[1][:1]], torch.float64, there).device == there
