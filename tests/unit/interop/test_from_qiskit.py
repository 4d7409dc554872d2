"""Circuits from Qiskit have the states of Qiskit's Statevector, and what cannot be one is refused."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from qiskit import QuantumCircuit, QuantumRegister
from qiskit.circuit import Gate, Parameter, ParameterVector
from qiskit.circuit import library as of
from qiskit.circuit.random import random_circuit
from qiskit.quantum_info import SparsePauliOp, Statevector, random_clifford, random_unitary

from ketscale import Layer
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError
from ketscale.interop.expressions import Expressions, ParametrisedCircuit
from ketscale.interop.qiskit import from_qiskit
from tests.property import examples

STANDARD = {
    name: gate
    for name, gate in of.get_standard_gate_name_mapping().items()
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


def test_random_circuits_are_translated() -> None:
    for seed in range(5):
        circuit = random_circuit(1 + seed, 6, max_operands=min(4, 1 + seed), seed=seed)
        assert_same(state(from_qiskit(circuit)), circuit)


def composite() -> Gate:
    inner, outer = QuantumCircuit(2, name="inner"), QuantumCircuit(3, name="outer")
    inner.rx(Parameter("a"), 1)
    inner.cx(1, 0)
    outer.append(inner.to_gate(), [2, 0])
    outer.ry(Parameter("c"), 1)
    return outer.to_gate()


GATES = {
    "cry of 0": of.CRYGate(Parameter("a"), ctrl_state=0),
    "mcx": of.MCXGate(3, ctrl_state=2),
    "ccry of 01": of.RYGate(Parameter("a")).control(2, ctrl_state="01"),
    "matrix of a permutation": of.UnitaryGate(np.eye(8)[[3, 1, 0, 2, 5, 4, 7, 6]]),
    "composite": composite(),
    "misnamed id": QuantumCircuit.to_gate(scrambled(1)),
    "unitary on 3": of.UnitaryGate(random_unitary(8, seed=3)),
    "permutation": of.PermutationGate([2, 0, 1]),
    "clifford": random_clifford(3, seed=4),
    "hamiltonian": of.HamiltonianGate(SparsePauliOp(["XY", "ZI"]).to_matrix(), 0.3),
    "evolution": of.PauliEvolutionGate(SparsePauliOp(["XYZ", "ZIX"], [0.3, -1.1]), 0.8),
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
    circuit.append(of.PauliEvolutionGate(SparsePauliOp(["XY", "ZI"], [0.3, -1.1]), Parameter("t")), [0, 1])
    bound = circuit.assign_parameters([0.8])
    product = bound.decompose(gates_to_decompose="PauliEvolution")
    assert_same(state(from_qiskit(bound)), product)
    assert_same(state(from_qiskit(circuit), weights=[0.8]), product)


def test_qubit_0_is_the_least_significant_and_words_are_spelt_as_in_qiskit() -> None:
    """Registers lie one after the other."""
    circuit = QuantumCircuit(QuantumRegister(1, "a"), QuantumRegister(2, "b"))
    circuit.x(0)
    circuit.ry(0.4, 2)
    angles = Angles(torch.zeros(1, 0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
    values = Fused().expval(from_qiskit(circuit), angles, ["IIZ", "IZI", "ZII"])
    np.testing.assert_allclose(values, [[-1, 1, np.cos(0.4)]], rtol=0, atol=1e-12)


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


def test_a_parameter_of_the_global_phase_alone_has_no_effect_and_one_that_was_bound_is_a_number() -> None:
    a, b = Parameter("a"), Parameter("b")
    circuit = QuantumCircuit(1, global_phase=a + 1)
    circuit.rx(0.3 * b + 1, 0)
    translated = from_qiskit(circuit)
    assert translated.weights == 2
    bound = circuit.assign_parameters({a: 0.3}).assign_parameters({b: 0.9})
    assert from_qiskit(bound).weights == 0
    for result in (state(translated, weights=[0.3, 0.9]), state(from_qiskit(bound))):
        assert_same(result, bound)


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


REFUSED: dict[str, Callable[[QuantumCircuit], object]] = {
    "opaque": lambda c: c.append(Gate("mystery", 1, []), [0]),
    "measured": lambda c: (c.h(0), c.measure(0, 0), c.cx(0, 1)),
    "bit overwritten": lambda c: (c.h(0), c.measure(0, 0), c.measure(1, 0), c.h(0), c.measure(0, 1)),
    "reset": lambda c: (c.h(0), c.reset(0)),
    "if": conditioned,
    "not finite": lambda c: c.rx(float("nan"), 0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_translated_is_refused_in_one_line(case: str) -> None:
    circuit = QuantumCircuit(2, 2)
    REFUSED[case](circuit)
    with pytest.raises(UserError, match=r"^[^\n]+$"):
        from_qiskit(circuit)


def test_inputs_that_the_circuit_does_not_have_are_refused() -> None:
    circuit, *_ = two_vectors()
    for inputs in (["v"], ["w", "w"]):
        with pytest.raises(UserError, match="parameter"):
            from_qiskit(circuit, inputs)


# --- angles that are expressions ---

S, T = Parameter("s"), Parameter("t")
VALUES = np.array([[0.7, 0.4], [1.3, 0.9], [0.2, 2.1]])
Formula = Callable[[Any, Any], Any]  # of two parameters, or of two numbers by NumPy's functions


def called(name: str, value: Any) -> Any:
    return getattr(np, name)(value) if isinstance(value, np.ndarray) else getattr(value, name)()


UNARY: dict[str, Callable[[Any], Any]] = {
    **{name: lambda e, name=name: called(name, e) for name in ("sin", "cos", "tan", "arctan", "exp", "abs", "sign")},
    **{name: lambda e, name=name: called(name, called("sin", e) / 2) for name in ("arcsin", "arccos")},
    "conjugate": lambda e: called("conjugate", e),
    "log": lambda e: called("log", e * e + 0.5),
    "root": lambda e: (e * e + 1) ** 0.5,
    "negative": lambda e: -e,
}  # fmt: skip
BINARY = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
NUMBERS = st.sampled_from([0.5, 2, 3, -1, 1.5, 7])


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> Formula:
    """Some operations on both parameters and on numbers."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from([lambda s, t: s, lambda s, t: t]))
    inner: Formula = draw(formulas(depth - 1))
    if draw(st.booleans()):
        unary = UNARY[draw(st.sampled_from(sorted(UNARY)))]
        return lambda s, t: unary(inner(s, t))
    binary = draw(st.sampled_from(BINARY))
    other = draw(st.one_of(formulas(depth - 1), NUMBERS.map(lambda number: lambda s, t: number)))
    first, second = draw(st.permutations([inner, other]))
    return lambda s, t: binary(first(s, t), second(s, t))


@examples(2)
@given(formulas())
@example(lambda s, t: s - s)
@example(lambda s, t: s + (t - t))
@example(lambda s, t: abs(np.e ** (s**0.5 + t)))
def test_values_and_derivatives_are_those_of_the_formula_on_numbers(formula: Formula) -> None:
    with np.errstate(all="ignore"):
        expected, *near = (formula(*(VALUES * [1 + d, 1 - 2 * d]).T) for d in (0, 1e-13, -1e-13))
    assume((abs(expected) < 100).all() and np.allclose(near, [expected] * 2, 1e-11, 1e-11))  # no jump
    values = torch.tensor(VALUES, requires_grad=True)
    try:
        expression = formula(S, T)
        # Qiskit 2.3 takes 2 / s - s for s.
        bound = [complex(expression.bind(dict(zip((S, T), row, strict=True)), True)) for row in VALUES]
    except ZeroDivisionError:
        assume(False)
    try:
        function = Expressions([expression], [S, T])
    except UserError as error:  # a number overflows, or Qiskit has a bug
        assume(not re.search("has the constant|Qiskit lost track", str(error)))
        raise
    assume(np.allclose(bound, expected))
    result = function(values)
    np.testing.assert_allclose(result[:, 0].detach(), expected, rtol=1e-10, atol=1e-12)
    result.sum().backward()
    assume(values.grad is not None and (abs(values.grad) < 100).all())
    torch.autograd.gradcheck(function, values)


@pytest.mark.parametrize("expression", [(S * 1j).exp(), S ** (1j)], ids=str)
def test_complex_angles_are_refused(expression: Any) -> None:
    circuit = QuantumCircuit(1)
    circuit.append(of.RYGate(T), [0])
    circuit = circuit.assign_parameters({T: expression})
    with pytest.raises(UserError, match=r"^angle .* has the constant .*; angles are real$"):
        from_qiskit(circuit)


ISING = SparsePauliOp(["ZZI", "IZZ", "XII"], [0.5, 1.25, 0.3])
CIRCUITS: dict[str, tuple[QuantumCircuit, Any]] = {
    "zz_feature_map": (of.zz_feature_map(3), ()),
    "pauli_feature_map": (of.pauli_feature_map(3, paulis=["X", "ZY"]), "x"),
    "classifier": (of.zz_feature_map(2).compose(of.real_amplitudes(2, reps=1)), "x"),
    "efficient_su2 of an expression": (of.efficient_su2(2, reps=0).assign_parameters([S, T, S * T, S]), S),
    "qaoa_ansatz": (of.qaoa_ansatz(ISING, reps=2), ()),
}


@pytest.mark.parametrize("name", CIRCUITS)
def test_a_layer_has_the_expectation_values_of_the_bound_circuit_and_their_derivatives(name: str) -> None:
    circuit, order = CIRCUITS[name]
    module = from_qiskit(circuit, order)
    assert isinstance(module, ParametrisedCircuit)
    words = [letter * circuit.num_qubits for letter in "ZX"]
    layer = Layer(module, words, dtype=torch.float64)
    inputs = torch.rand(2, module.inputs, dtype=torch.float64, requires_grad=True)

    def wanted(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        names = [*module.input_names, *module.weight_names]
        bound = (dict(zip(names, [*row, *weight], strict=True)) for row in rows)
        states = [Statevector(circuit.assign_parameters(each, strict=False)) for each in bound]
        return np.array([[s.expectation_value(SparsePauliOp(word)).real for word in words] for s in states])

    points = inputs.detach().numpy(), layer.weight.detach().numpy()
    values = layer(inputs)
    np.testing.assert_allclose(values.detach(), wanted(*points), rtol=0, atol=1e-12)
    slopes = torch.autograd.grad(
        values.sum(), (inputs, layer.weight), allow_unused=True, materialize_grads=True
    )
    # Along one direction, in which each parameter moves by another length.
    along = [np.linspace(0.5, 1, at.size).reshape(at.shape) * 1e-6 for at in points]
    up, down = (
        wanted(*(at + sign * step for at, step in zip(points, along, strict=True))) for sign in (1, -1)
    )
    slope = sum((result.numpy() * step).sum() for result, step in zip(slopes, along, strict=True))
    assert slope == pytest.approx((up - down).sum() / 2, rel=0, abs=1e-13)


def test_parameters_have_qiskits_order_and_names_and_plain_circuits_stay_circuits() -> None:
    circuit = of.zz_feature_map(2).compose(of.real_amplitudes(2, reps=1))
    everything = from_qiskit(circuit)
    assert everything.weight_names == tuple(p.name for p in circuit.parameters)
    module = from_qiskit(circuit, "x")
    assert (module.qubits, module.inputs, module.weights) == (2, 2, 4)
    assert module.input_names == ("x[0]", "x[1]") and module.weight_names[0] == "θ[0]"
    assert isinstance(from_qiskit(of.real_amplitudes(2)), Circuit)
    multiplied = QuantumCircuit(1)
    multiplied.rx(T * 1, 0)
    assert isinstance(from_qiskit(multiplied), Circuit)


def test_a_column_that_mixes_inputs_and_weights() -> None:
    circuit = QuantumCircuit(1)
    circuit.ry(S * T + 1, 0)
    module = from_qiskit(circuit, S)
    layer = Layer(module, dtype=torch.float64)
    inputs = torch.tensor([[0.3], [-1.2]], dtype=torch.float64)
    torch.testing.assert_close(layer(inputs), torch.cos(inputs * layer.weight + 1))
