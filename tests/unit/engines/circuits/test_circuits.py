"""Circuit: what it refuses, and how its ansaetze are built."""

from __future__ import annotations

import pickle
from collections.abc import Callable
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
    pauli_words,
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
    ],
)
def test_a_wrong_circuit_is_refused(qubits: int, gate: Gate | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Circuit(qubits, (gate,) if gate else ())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Circuit(2).h("a"), r"Hadamard on wires \('a',\): wires are whole numbers"),
        (lambda: Circuit(2).cnot(0, 0.5), r"CNOT on wires \(0, 0\.5\): wires are whole numbers"),
        (lambda: Gate("Hadamard", 0), "Hadamard on wires 0: wires are whole numbers"),
        (lambda: Circuit("2"), "qubits must be a whole number, not '2'"),
        (lambda: Circuit(2.0), r"qubits must be a whole number, not 2\.0"),
    ],
)
def test_wires_and_qubits_are_whole_numbers(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_columns_are_counted_by_their_highest_index() -> None:
    circuit = Circuit(1, (RY, Gate("RX", (0,), (Column("weight", 4),))))
    assert (circuit.inputs, circuit.weights) == (1, 5)
    assert (Circuit(1, ()).inputs, Circuit(1, ()).weights) == (0, 0)


def test_equal_circuits_share_one_hash() -> None:
    assert hash(vqc_ansatz(3, 2)) == hash(vqc_ansatz(3, 2))
    assert len({vqc_ansatz(3, 2), vqc_ansatz(3, 2), vqc_ansatz(3, 1)}) == 2


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


def test_pauli_words_put_each_letter_on_each_wire() -> None:
    assert pauli_words(3) == ("ZII", "IZI", "IIZ")
    assert pauli_words(2, "XZ") == ("XI", "IX", "ZI", "IZ")


def test_vqc_ansatz_is_inputs_then_layers_of_weights_and_a_ring() -> None:
    circuit = vqc_ansatz(3, 2)
    layer = ["RY"] * 3 + ["CNOT"] * 3
    assert [gate.name for gate in circuit.gates] == ["RY"] * 3 + layer * 2
    assert [gate.wires for gate in circuit.gates if gate.name == "CNOT"] == [(0, 1), (1, 2), (2, 0)] * 2
    assert [gate.columns[0] for gate in circuit.gates if gate.columns] == [
        *(Column("input", w) for w in range(3)),
        *(Column("weight", w) for w in range(6)),
    ]


def test_vqc_ansatz_has_no_ring_on_one_qubit_and_two_cnots_on_two() -> None:
    assert {gate.name for gate in vqc_ansatz(1, 2).gates} == {"RY"}
    assert [gate.wires for gate in vqc_ansatz(2, 1).gates if gate.name == "CNOT"] == [(0, 1), (1, 0)]


def test_the_gate_table_is_complete() -> None:
    assert len(GATES) == 21
    assert all(kind.wires in (1, 2) and kind.angles in (0, 1, 3) for kind in GATES.values())


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
    "angle", ["x", "y0", "x-1", "x01", "", True, None, 1j, float("nan"), float("inf"), torch.ones(2)]
)
def test_an_angle_that_means_nothing_is_refused(angle: Any) -> None:
    with pytest.raises(UserError, match="write 'x0' for input 0, 'w0' for weight 0, or a finite number"):
        Circuit(1).rx(0, angle)


def test_an_angle_that_could_be_trained_is_no_constant() -> None:
    with pytest.raises(UserError, match="write 'x0'"):
        Circuit(1).rx(0, torch.tensor(0.5, requires_grad=True))
