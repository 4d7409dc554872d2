"""Circuit: what it refuses, and how its ansaetze are built."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pennylane as qml
import pytest
import torch

from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import GATES, Angles, Circuit, Column, Gate, check, given
from ketscale.errors import UserError

HALF = torch.zeros(4, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "make",
    [
        *(
            lambda gate=gate: Circuit(2, (gate,))
            for gate in (
                Gate("RQ", (0,)), Gate("CNOT", (0,)), Gate("RX", (0,)), Gate("CNOT", (1, 1)), Gate("Hadamard", (2,)),
                Gate("Rot", (0,), (Column("weight", 0),)), Gate("Hadamard", (-1,)),
            )
        ),
        *(lambda qubits=qubits: Circuit(qubits) for qubits in (0, 2.0)),
        lambda: Circuit(2).cnot(0, 0.5),
        *(
            lambda given=given: check(vqc_ansatz(2, 2), Angles(*given))
            for given in (
                (torch.zeros(2), torch.zeros(4)), (torch.zeros(2, 1), torch.zeros(4)), (torch.zeros(2, 2), torch.zeros(3)),
                (torch.zeros(2, 2), torch.zeros(1, 4)), (torch.zeros(2, 2), torch.zeros(4).double()),
                (HALF.view(2, 2), HALF), (torch.zeros(2, 2), torch.zeros(4, device="meta")),
            )
        ),
        lambda: given(np.eye(2), 0, 1), lambda: given(-np.eye(8), 0, 1, 2), lambda: given(np.array([[1, 1], [0, 1]]), 0),
        *(
            lambda angle=angle: Circuit(1).rx(0, angle)
            for angle in ("y0", "x-1", "x01", True, 1j, np.nan, torch.ones(2), torch.tensor(0.5, requires_grad=True))
        ),
        lambda: qlcu_ansatz(1, 1),
    ],
)  # fmt: skip
def test_what_is_no_circuit_and_angles_that_do_not_fit_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UserError):
        make()


def text_of(circuit: Circuit) -> list[tuple[str, tuple[int, ...], tuple[tuple[str, int], ...]]]:
    return [(g.name, g.wires, tuple((c.kind, c.index) for c in g.columns)) for g in circuit.gates]


def test_ansaetze_are_the_published_ones() -> None:
    ring = [("CNOT", (wire, (wire + 1) % 3), ()) for wire in range(3)]
    layers = [[*(("RY", (w,), (("weight", 3 * k + w),)) for w in range(3)), *ring] for k in range(2)]
    inputs = [("RY", (wire,), (("input", wire),)) for wire in range(3)]
    assert text_of(vqc_ansatz(3, 2)) == [*inputs, *layers[0], *layers[1]]
    operations = qml.StronglyEntanglingLayers.compute_decomposition(
        torch.arange(36).reshape(3, 4, 3), wires=range(4), ranges=(1, 2, 3), imprimitive=qml.CNOT
    )
    assert text_of(strongly_entangling_ansatz(4, 3)) == [
        *(("RX", (wire,), (("input", wire),)) for wire in range(4)),
        *((op.name, tuple(op.wires), tuple(("weight", int(p)) for p in op.parameters)) for op in operations),
    ]
    qlcu = qlcu_ansatz(3, 2)
    assert (qlcu.weights, [g.columns[0] for g in qlcu.gates]) == (0, [Column("input", k) for k in range(24)])
    assert [g.name for g in qlcu.gates[:12:3]] == ["RY", "IsingXX", "RY", "IsingYY"]
    assert [g.wires for g in qlcu.gates[3:6]] == [(0, 1), (1, 2), (2, 0)]


def test_a_circuit_is_written_gate_by_gate_and_pickled_without_its_hash() -> None:
    """Texts have another hash in another process."""
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
    constant = Column("constant", value=0.5)
    assert circuit.gates[10].columns == (Column("input", 1), constant, Column("weight", 1))
    assert circuit.gates[15].wires == (1, 0) and (circuit.inputs, circuit.weights) == (2, 11)
    hash(circuit)
    assert b"_hash" not in pickle.dumps(circuit)
    assert {pickle.loads(pickle.dumps(circuit)), circuit} == {circuit}
