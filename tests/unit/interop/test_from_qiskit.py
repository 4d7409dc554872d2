"""Circuits from Qiskit and OpenQASM have the states of Qiskit's Statevector, and what cannot be one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from qiskit import QuantumCircuit, QuantumRegister, qasm2, qasm3
from qiskit.circuit import (
    AnnotatedOperation,
    ControlModifier,
    Gate,
    InverseModifier,
    Parameter,
    ParameterVector,
    PowerModifier,
)
from qiskit.circuit.library import (
    CRYGate,
    CXGate,
    DiagonalGate,
    HamiltonianGate,
    MCXGate,
    PauliEvolutionGate,
    PermutationGate,
    RYGate,
    SGate,
    UnitaryGate,
    get_standard_gate_name_mapping,
)
from qiskit.circuit.random import random_circuit
from qiskit.quantum_info import SparsePauliOp, Statevector, random_clifford, random_unitary

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError
from ketscale.interop.expressions import ParametrisedCircuit
from ketscale.interop.qiskit import from_qasm2, from_qasm3, from_qiskit
from tests.unit.interop.qasm_texts import QASM2, QASM3, VQE, Algorithm

STANDARD = {
    name: gate
    for name, gate in get_standard_gate_name_mapping().items()
    if name not in ("measure", "reset", "delay")
}


def state(
    circuit: Circuit | ParametrisedCircuit,
    inputs: list[float] | None = None,
    weights: list[float] | None = None,
) -> np.ndarray:
    angles = Angles(*(torch.tensor(each or [], dtype=torch.float64) for each in ([inputs or []], weights)))
    if isinstance(circuit, ParametrisedCircuit):
        circuit, angles = circuit.circuit, circuit(*angles)
    return Fused().state(circuit, angles)[0].numpy()


def assert_same(found: np.ndarray, bound: QuantumCircuit) -> None:
    """Equal states up to a global phase."""
    expected = Statevector(bound.remove_final_measurements(inplace=False)).data
    phase = np.vdot(found, expected)
    assert abs(phase) == pytest.approx(1, abs=1e-10)
    np.testing.assert_allclose(found * phase, expected, rtol=0, atol=1e-10)


def assert_weights_are_right(circuit: QuantumCircuit) -> None:
    """The circuit at random values of its parameters, once as weights and once as numbers."""
    values = np.random.default_rng(5).uniform(-4, 4, circuit.num_parameters)
    bound = circuit.assign_parameters(values)
    assert_same(state(from_qiskit(circuit), weights=list(values)), bound)
    assert_same(state(from_qiskit(bound)), bound)


def scrambled(qubits: int, *then: tuple[Gate, list[int]]) -> QuantumCircuit:
    """A generic state, some gates on it, and rotations that make phases visible."""
    angles = iter(np.random.default_rng(1).uniform(-3, 3, 6 * qubits))
    circuit = QuantumCircuit(qubits)
    for qubit in range(qubits):
        circuit.u(next(angles), next(angles), next(angles), qubit)
    for qubit in range(1, qubits):
        circuit.cx(qubit - 1, qubit)
    for gate, on in then:
        circuit.append(gate, on)
    for qubit in range(qubits):
        circuit.u(next(angles), next(angles), next(angles), qubit)
    return circuit


def test_every_standard_gate_with_bare_parameters_and_with_numbers() -> None:
    for gate in STANDARD.values():
        qubits = list(range(gate.num_qubits))[::-1]
        assert_weights_are_right(scrambled(max(2, gate.num_qubits), (gate, qubits)))


def test_random_circuits_are_translated_and_read_back_from_openqasm() -> None:
    for seed in range(5):
        circuit = random_circuit(1 + seed, 6, max_operands=min(4, 1 + seed), seed=seed)
        assert_same(state(from_qiskit(circuit)), circuit)
    circuit = random_circuit(4, 5, max_operands=3, seed=8)
    assert_same(state(from_qasm3(qasm3.dumps(circuit))), circuit)
    assert_same(state(from_qasm2(qasm2.dumps(circuit))), circuit)


def composite() -> Gate:
    inner = QuantumCircuit(2, name="inner")
    inner.rx(Parameter("a"), 1)
    inner.cx(1, 0)
    inner.rz(Parameter("b"), 0)
    outer = QuantumCircuit(3, name="outer")
    outer.append(inner.to_gate(), [2, 0])
    outer.ry(Parameter("c"), 1)
    return outer.to_gate()


def misnamed() -> Gate:
    """A gate of the user's with the name of one of Qiskit's, whose parameter it doubles."""
    definition = QuantumCircuit(1, name="rx")
    definition.rx(1.4, 0)
    gate = Gate("rx", 1, [0.7])
    gate.definition = definition
    return gate


GATES = {
    "cx of 0": CXGate(ctrl_state=0),
    "cry of 0": CRYGate(Parameter("a"), ctrl_state=0),
    "mcx": MCXGate(3, ctrl_state=2),
    "ccry of 01": RYGate(Parameter("a")).control(2, ctrl_state="01"),
    "matrix of a permutation": UnitaryGate(np.eye(8)[[3, 1, 0, 2, 5, 4, 7, 6]]),
    "composite": composite(),
    "misnamed": misnamed(),
    "misnamed id": QuantumCircuit.to_gate(scrambled(1)),
    "unitary on 3": UnitaryGate(random_unitary(8, seed=3)),
    "diagonal": DiagonalGate(list(np.exp(1j * np.arange(8) ** 2))),
    "permutation": PermutationGate([2, 0, 1]),
    "clifford": random_clifford(3, seed=4),
    "hamiltonian": HamiltonianGate(SparsePauliOp(["XY", "ZI"]).to_matrix(), 0.3),
    "evolution": PauliEvolutionGate(SparsePauliOp(["XYZ", "ZIX"], [0.3, -1.1]), 0.8),
    "modified": AnnotatedOperation(SGate(), [InverseModifier(), PowerModifier(0.3), ControlModifier(1)]),
}
GATES["misnamed id"].name = "id"


# A warning of Qiskit's own way to the matrix of an evolution.
@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
@pytest.mark.parametrize("name", GATES)
def test_gates_that_are_decomposed(name: str) -> None:
    gate = GATES[name]
    assert_weights_are_right(scrambled(4, (gate, [2, 0, 3, 1][: gate.num_qubits])))


def test_an_evolution_is_the_product_that_its_synthesis_says_bound_or_not() -> None:
    circuit = QuantumCircuit(2)
    circuit.ry(0.4, [0, 1])
    circuit.append(PauliEvolutionGate(SparsePauliOp(["XY", "ZI"], [0.3, -1.1]), Parameter("t")), [0, 1])
    bound = circuit.assign_parameters([0.8])
    product = bound.decompose(gates_to_decompose="PauliEvolution")
    assert_same(state(from_qiskit(bound)), product)
    assert_same(state(from_qiskit(circuit), weights=[0.8]), product)


def test_qubit_0_is_the_least_significant_and_words_are_spelt_as_in_qiskit() -> None:
    circuit = QuantumCircuit(3)
    circuit.x(0)
    circuit.ry(0.4, 2)
    angles = Angles(torch.zeros(1, 0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
    values = Fused().expval(from_qiskit(circuit), angles, ["IIZ", "IZI", "ZII"])
    np.testing.assert_allclose(values, [[-1, 1, np.cos(0.4)]], rtol=0, atol=1e-12)


def test_registers_lie_one_after_the_other() -> None:
    a, b = QuantumRegister(1, "a"), QuantumRegister(2, "b")
    circuit = QuantumCircuit(a, b)
    circuit.ry(0.3, a[0])
    circuit.cx(a[0], b[1])
    circuit.rx(1.1, b[0])
    assert_same(state(from_qiskit(circuit)), circuit)


def two_vectors() -> tuple[QuantumCircuit, ParameterVector, Parameter]:
    x, w = ParameterVector("x", 12), Parameter("w")
    circuit = QuantumCircuit(2)
    circuit.ry(x[10], 0)
    circuit.rx(x[2], 1)
    circuit.cx(0, 1)
    circuit.rz(w, 1)
    circuit.ry(x[2], 1)
    return circuit, x, w


def test_the_inputs_of_a_vector_keep_their_places() -> None:
    circuit, x, w = two_vectors()
    row = list(np.linspace(0.1, 1.3, 12))
    bound = circuit.assign_parameters({x[10]: row[10], x[2]: row[2], w: 0.7})
    for inputs in ("x", x):
        translated = from_qiskit(circuit, inputs)
        assert (translated.inputs, translated.weights) == (12, 1)
        assert_same(state(translated, row, [0.7]), bound)


def test_a_parameter_of_the_global_phase_alone_is_a_weight_without_effect() -> None:
    a, b = Parameter("a"), Parameter("b")
    circuit = QuantumCircuit(1, global_phase=a + 1)
    circuit.ry(b, 0)
    translated = from_qiskit(circuit)
    assert translated.weights == 2
    assert_same(state(translated, weights=[0.3, 0.9]), circuit.assign_parameters({a: 0.3, b: 0.9}))


def test_a_parameter_that_was_bound_is_a_number() -> None:
    a, b = Parameter("a"), Parameter("b")
    circuit = QuantumCircuit(1)
    circuit.rx(a * b + 1, 0)
    bound = circuit.assign_parameters({a: 2.0}).assign_parameters({b: 0.3})
    assert from_qiskit(bound).weights == 0
    assert_same(state(from_qiskit(bound)), bound)


def test_a_start_is_prepared_and_what_moves_nothing_is_ignored() -> None:
    start = np.arange(1, 5) / np.sqrt(30)
    circuit = QuantumCircuit(3, 3)
    circuit.reset(0)
    circuit.barrier()
    circuit.initialize(start, [2, 0])
    circuit.delay(100, 1)
    circuit.reset(1)
    circuit.prepare_state("1", 1)
    circuit.cx(0, 1)
    circuit.id(2)
    # Statevector would draw the outcomes of resets.
    expected = QuantumCircuit(3)
    expected.prepare_state(start, [2, 0])
    expected.x(1)
    expected.cx(0, 1)
    circuit.measure([0, 2], [1, 0])
    circuit.barrier()
    circuit.measure(1, 2)
    assert_same(state(from_qiskit(circuit)), expected)


def conditioned(circuit: QuantumCircuit) -> None:
    with circuit.if_test((circuit.clbits[0], 1)):
        circuit.x(0)


REFUSED = {
    "opaque": (lambda c: c.append(Gate("mystery", 1, []), [0]), "instruction mystery: Qiskit cannot decompose"),
    "measured": (
        lambda c: (c.h(0), c.measure(0, 0), c.cx(0, 1)),
        "gate cx on qubits [0, 1]: it acts after a measurement",
    ),
    "bit overwritten": (
        lambda c: (c.h(0), c.measure(0, 0), c.measure(1, 0), c.h(0), c.measure(0, 1)), "acts after a measurement"
    ),
    "reset": (lambda c: (c.h(0), c.reset(0)), "instruction reset on qubits [0]: only qubits that are still |0>"),
    "if": (conditioned, "instruction if_else on qubits [0]: control flow"),
    "not finite": (lambda c: c.rx(float("nan"), 0), "of gate rx is not a finite real number"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_translated_is_refused_in_one_line(case: str) -> None:
    build, message = REFUSED[case]
    circuit = QuantumCircuit(2, 2)
    build(circuit)
    with pytest.raises(UserError) as caught:
        from_qiskit(circuit)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_inputs_that_the_circuit_does_not_have_are_refused() -> None:
    circuit, *_ = two_vectors()
    with pytest.raises(
        UserError, match=r"v is not a parameter of this circuit, which has w, x\[2\], x\[10\]"
    ):
        from_qiskit(circuit, ["v"])
    with pytest.raises(UserError, match="a parameter is given twice"):
        from_qiskit(circuit, ["w", "w"])


@pytest.mark.parametrize(
    ("algorithm", "ours", "theirs"),
    [
        *((each, from_qasm2, QuantumCircuit.from_qasm_str) for each in QASM2.values()),
        *((each, from_qasm3, qasm3.loads) for each in QASM3.values()),
    ],
    ids=[*QASM2, *QASM3],
)
def test_algorithms_in_openqasm(algorithm: Algorithm, ours: Any, theirs: Any) -> None:
    circuit = ours(algorithm.text)
    assert_same(state(circuit), theirs(algorithm.text))
    probabilities = np.abs(state(circuit)) ** 2
    found = {f"{k:0{circuit.qubits}b}": p for k, p in enumerate(probabilities) if p > 1e-10}
    assert found == pytest.approx(algorithm.outcomes, abs=1e-10)


def test_the_inputs_of_openqasm_3_become_columns_and_texts_may_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "vqe.qasm").write_text(VQE)
    loaded = qasm3.loads(VQE)
    bound = loaded.assign_parameters(
        {p: {"a": 0.4, "b": -1.3, "turn": 2.2}[p.name] for p in loaded.parameters}
    )
    assert_same(state(from_qasm3(str(tmp_path / "vqe.qasm")), weights=[0.4, -1.3, 2.2]), bound)
    circuit = from_qasm3(tmp_path / "vqe.qasm", ["turn", "a"])
    assert (circuit.inputs, circuit.weights) == (2, 1)
    assert_same(state(circuit, [2.2, 0.4], [-1.3]), bound)


def test_texts_and_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    for load, language in ((from_qasm2, "OpenQASM 2"), (from_qasm3, "OpenQASM 3")):
        with pytest.raises(UserError, match=f"^this is no {language} .*; correct the text$"):
            load("OPENQASM 7.0; qqreg q[2];")
        with pytest.raises(UserError, match=f"cannot be read as {language} .*FileNotFoundError"):
            load(tmp_path / "missing.qasm")
