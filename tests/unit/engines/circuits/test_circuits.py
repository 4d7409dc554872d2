"""Circuit: what it refuses, and how its ansaetze are built."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import (
    GATES,
    Angles,
    Circuit,
    Column,
    Gate,
    check,
    given,
)
from ketscale.errors import UserError

RY = Gate("RY", (0,), (Column("input", 0),))


@pytest.mark.parametrize(
    ("qubits", "gate", "message"),
    [
        (1, Gate("RQ", (0,)), "unknown gate 'RQ'"),
        (2, Gate("CNOT", (0,)), r"CNOT takes 2 wire\(s\)"),
        (1, Gate("RX", (0,)), r"1 angle\(s\), not 1 and 0"),
        (1, Gate("Rot", (0,), (Column("weight", 0),)), r"3 angle\(s\)"),
        (2, Gate("CNOT", (1, 1)), "wires must differ"),
        (2, Gate("Hadamard", (2,)), r"be in 0\.\.1"),
        (2, Gate("Hadamard", (-1,)), r"be in 0\.\.1"),
        (0, None, "at least 1 qubit"),
        (2.0, None, "qubits must be a whole number"),
    ],
)
def test_a_wrong_circuit_is_refused(qubits: int, gate: Gate | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Circuit(qubits, (gate,) if gate else ())


def test_wires_are_whole_numbers() -> None:
    with pytest.raises(UserError, match="wires are whole numbers"):
        Circuit(2).cnot(0, 0.5)


@pytest.mark.parametrize(
    ("inputs", "weights", "message"),
    [
        (torch.zeros(2), torch.zeros(4), "inputs must be"),
        (torch.zeros(2, 1), torch.zeros(4), "inputs must be"),
        (torch.zeros(2, 2), torch.zeros(3), "weights must be"),
        (torch.zeros(2, 2), torch.zeros(1, 4), "weights must be"),
        (torch.zeros(2, 2), torch.zeros(4, dtype=torch.float64), "use one precision"),
        (torch.zeros(2, 2, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bfloat16), "circuits take"),
        (torch.zeros(2, 2), torch.zeros(4, device="meta"), "use one device"),
    ],
)
def test_angles_of_a_wrong_shape_precision_or_device_are_refused(
    inputs: torch.Tensor, weights: torch.Tensor, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(vqc_ansatz(2, 2), Angles(inputs, weights))


def test_an_empty_batch_and_spare_columns_are_accepted() -> None:
    check(vqc_ansatz(2, 2), Angles(torch.zeros(0, 2), torch.zeros(4)))
    check(vqc_ansatz(2, 2), Angles(torch.zeros(3, 5), torch.zeros(9)))


def test_vqc_ansatz_is_inputs_then_layers_of_weights_and_a_ring() -> None:
    circuit = vqc_ansatz(3, 2)
    layer = ["RY"] * 3 + ["CNOT"] * 3
    assert [gate.name for gate in circuit.gates] == ["RY"] * 3 + layer * 2
    assert [gate.wires for gate in circuit.gates if gate.name == "CNOT"] == [(0, 1), (1, 2), (2, 0)] * 2
    assert [gate.columns[0] for gate in circuit.gates if gate.columns] == [
        *(Column("input", w) for w in range(3)),
        *(Column("weight", w) for w in range(6)),
    ]


@pytest.mark.parametrize(
    ("matrix", "wires", "message"),
    [
        ([[1, 0], [0, 1]], (0, 1), r"must be 4x4 on 1 or 2 wires, or a permutation, not \(2, 2\)"),
        (-torch.eye(8), (0, 1, 2), "1 or 2 wires"),
        ([[1, 1], [0, 1]], (0,), "not unitary"),
    ],
)
def test_a_given_matrix_that_is_no_gate_is_refused(
    matrix: object, wires: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        given(matrix, *wires)  # type: ignore[arg-type]


def test_the_strongly_entangling_ansatz_is_pennylanes() -> None:
    import pennylane as qml

    circuit = strongly_entangling_ansatz(4, 3)
    layers = qml.StronglyEntanglingLayers.compute_decomposition(
        torch.arange(36).reshape(3, 4, 3), wires=range(4), ranges=(1, 2, 3), imprimitive=qml.CNOT
    )
    expected = [(op.name, tuple(op.wires), tuple(int(p) for p in op.parameters)) for op in layers]
    found = [(g.name, g.wires, tuple(c.index for c in g.columns)) for g in circuit.gates[4:]]
    assert found == expected
    assert [(g.name, g.columns[0].kind) for g in circuit.gates[:4]] == [("RX", "input")] * 4


def test_the_qlcu_ansatz_uses_each_of_its_inputs_once() -> None:
    circuit = qlcu_ansatz(3, 2)
    assert (circuit.inputs, circuit.weights) == (4 * 3 * 2, 0)
    assert [g.columns[0].index for g in circuit.gates] == list(range(24))
    assert [g.name for g in circuit.gates[:12:3]] == ["RY", "IsingXX", "RY", "IsingYY"]
    assert [g.wires for g in circuit.gates[3:6]] == [(0, 1), (1, 2), (2, 0)]
    with pytest.raises(UserError, match="at least 2 qubits"):
        qlcu_ansatz(1, 1)


def test_a_circuit_is_written_gate_by_gate() -> None:
    swap = np.eye(4)[[0, 2, 1, 3]]
    circuit = (
        Circuit(2).h(0).x(1).y(0).z(1).s(0).t(1)
        .rx(0, "x0").ry(1, "w0").rz(0, 0.5).phase(1, np.float64(0.25)).rot(0, "x1", torch.tensor(0.5), "w1")
        .cnot(0, 1).cz(1, 0).swap(0, 1).crx(0, 1, 1).cry(1, 0, "x0").crz(0, 1, "w10").cphase(0, 1, Column("weight", 2))
        .xx(0, 1, "x0").yy(1, 0, "x0").zz(0, 1, "x0").unitary(swap, 1, 0)
    )  # fmt: skip
    assert [gate.name for gate in circuit.gates] == [
        *("Hadamard", "PauliX", "PauliY", "PauliZ", "S", "T", "RX", "RY", "RZ", "PhaseShift", "Rot"),
        *("CNOT", "CZ", "SWAP", "CRX", "CRY", "CRZ", "ControlledPhaseShift", "IsingXX", "IsingYY", "IsingZZ"),
        "QubitUnitary",
    ]
    assert {gate.name for gate in circuit.gates} == {*GATES, "QubitUnitary"}
    assert circuit.gates[10].columns == (
        *(Column("input", 1), Column("constant", value=0.5)),
        Column("weight", 1),
    )
    assert circuit.gates[15].wires == (1, 0)
    assert (circuit.inputs, circuit.weights) == (2, 11)
    assert hash(circuit) == hash(pickle.loads(pickle.dumps(circuit)))


@pytest.mark.parametrize(
    "angle",
    ["y0", "x-1", "x01", True, 1j, float("nan"), torch.ones(2), torch.tensor(0.5, requires_grad=True)],
)
def test_an_angle_that_means_nothing_is_refused(angle: Any) -> None:
    with pytest.raises(UserError, match="write 'x0' for input 0, 'w0' for weight 0, or a finite number"):
        Circuit(1).rx(0, angle)
