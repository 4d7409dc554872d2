"""Expressions of Qiskit's parameters have Qiskit's values and derivatives, and a Layer and JAX take circuits of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter, ParameterVector
from qiskit.circuit.library import (
    PauliEvolutionGate,
    RYGate,
    efficient_su2,
    pauli_feature_map,
    qaoa_ansatz,
    real_amplitudes,
    zz_feature_map,
)
from qiskit.quantum_info import SparsePauliOp, Statevector

from ketscale import Layer, ParametrisedCircuit, from_qiskit
from ketscale.engines.circuits.circuit import Circuit
from ketscale.errors import UserError
from ketscale.interop.expressions import Expressions

S, T = Parameter("s"), Parameter("t")
VALUES = np.array([[0.7, 0.4], [1.3, 0.9], [0.2, 2.1]])
EXPRESSIONS: dict[str, Any] = {
    "negative": -T,
    "product": S * T,
    "quotient": S / T,
    "root": S**0.5,
    "power": S**T,
    "base": 2**S,
    "sin": S.sin(),
    "cos": (2 * T).cos(),
    "tan": (S / 2).tan(),
    "arcsin": (S / 4).arcsin(),
    "arccos": (T / 4).arccos(),
    "arctan": T.arctan(),
    "exp": (S - T).exp(),
    "log": (S * T).log(),
    "abs": (S - T).abs(),
    "sign": T * (S - T).sign(),
    "conjugate": S.conjugate() * T,
    "i squared": (S * 1j) * 1j,
    "feature map": 2 * (np.pi - S) * (np.pi - T),
    "partly bound": (S * T + 1).bind({S: 2.0}),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_and_derivatives_are_those_of_qiskit(name: str) -> None:
    expression = EXPRESSIONS[name]
    values = torch.tensor(VALUES, requires_grad=True)
    found = Expressions([expression], [S, T])(values)
    found.sum().backward()

    def bound(row: np.ndarray) -> float:
        return complex(expression.bind({p: row[[S, T].index(p)] for p in expression.parameters})).real

    np.testing.assert_allclose(found[:, 0].detach(), [bound(row) for row in VALUES], rtol=1e-14)
    steps = 1e-5 * np.eye(2)
    slopes = [[(bound(row + step) - bound(row - step)) / 2e-5 for step in steps] for row in VALUES]
    np.testing.assert_allclose(values.grad, slopes, rtol=1e-8, atol=1e-9)


def test_values_are_those_of_the_same_formula_on_numbers() -> None:
    formulas: list[Callable[..., Any]] = [
        lambda s, t: s ** (t - 2),
        lambda s, t: 3 - 2 ** (s * t),
        lambda s, t: (0.5**s) ** t + 1.5**t,
        lambda s, t: s - (t - 2 * s),
        lambda s, t: s / (t + 1) - 2 / (s + t),
        lambda s, t: (3 - t) / (1 - s / 5) - t**3,
    ]
    found = Expressions([formula(S, T) for formula in formulas], [S, T])(torch.tensor(VALUES))
    np.testing.assert_allclose(found, [[formula(*row) for formula in formulas] for row in VALUES], rtol=1e-14)


def test_expressions_of_one_shape_are_computed_together_and_keep_their_order() -> None:
    x = ParameterVector("x", 3)
    mixed = [2 * x[0], x[1].sin(), 3 * x[2], x[0], 0.1 * x[1], x[2].sin(), (x[0] + x[1]).log()]
    expressions = Expressions(mixed, list(x))
    assert len(expressions._alike) == 4
    a, b, c = values = np.array([0.3, -0.2, 1.7])
    wanted = [2 * a, np.sin(b), 3 * c, a, 0.1 * b, np.sin(c), np.log(a + b)]
    for library in (np, torch):
        found = expressions(torch.tensor(values) if library is torch else values, library)
        np.testing.assert_allclose(found, wanted, rtol=1e-15)
    # 0.1 is no binary fraction: each precision has its own.
    assert expressions(torch.tensor([0.0, 1.0, 0.0]))[4] == torch.tensor(0.1)


@pytest.mark.parametrize("expression", [(S * 1j).exp(), S ** (1j)], ids=str)
def test_complex_angles_are_refused(expression: Any) -> None:
    circuit = QuantumCircuit(1)
    circuit.append(RYGate(T), [0])
    circuit = circuit.assign_parameters({T: expression})
    with pytest.raises(UserError, match=r"^angle .* has the constant .*; angles are real$"):
        from_qiskit(circuit)


def within_a_gate() -> QuantumCircuit:
    inner, circuit = QuantumCircuit(1, name="mine"), QuantumCircuit(3)
    inner.rx(2 * T, 0)
    circuit.append(inner.to_gate(), [1])
    circuit.append(RYGate(S).control(2), [1, 0, 2])
    return circuit


def evolution() -> QuantumCircuit:
    """The terms commute, so that the product is the exponential, which Statevector takes."""
    circuit = QuantumCircuit(2)
    circuit.ry(0.4, [0, 1])
    circuit.append(PauliEvolutionGate(SparsePauliOp(["XY", "YX"], [0.3, -1.1]), T), [0, 1])
    return circuit


ISING = SparsePauliOp(["ZZI", "IZZ", "XII"], [0.5, 1.25, 0.3])
CIRCUITS: dict[str, tuple[QuantumCircuit, Any]] = {
    "zz_feature_map": (zz_feature_map(3), ()),
    "pauli_feature_map": (pauli_feature_map(3, paulis=["X", "ZY"]), "x"),
    "classifier": (zz_feature_map(2).compose(real_amplitudes(2, reps=1)), "x"),
    "efficient_su2 of an expression": (efficient_su2(2, reps=0).assign_parameters([S, T, S * T, S]), S),
    "qaoa_ansatz": (qaoa_ansatz(ISING, reps=2), ()),
    "within": (within_a_gate(), "t"),
    "evolution": (evolution(), ()),
}


# A warning of Qiskit's own way to the matrix of an evolution.
@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
@pytest.mark.parametrize("name", CIRCUITS)
def test_a_layer_has_the_expectation_values_of_the_bound_circuit_and_their_derivatives(name: str) -> None:
    circuit, chosen = CIRCUITS[name]
    module = from_qiskit(circuit, chosen)
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
    slope = sum((found.numpy() * step).sum() for found, step in zip(slopes, along, strict=True))
    assert slope == pytest.approx((up - down).sum() / 2, rel=0, abs=1e-13)


def test_parameters_have_qiskits_order_and_names_and_plain_circuits_stay_circuits() -> None:
    circuit = zz_feature_map(2).compose(real_amplitudes(2, reps=1))
    everything = from_qiskit(circuit)
    assert everything.weight_names == tuple(p.name for p in circuit.parameters)
    module = from_qiskit(circuit, "x")
    assert (module.qubits, module.inputs, module.weights) == (2, 2, 4)
    assert module.input_names == ("x[0]", "x[1]") and module.weight_names[0] == "θ[0]"
    assert isinstance(from_qiskit(real_amplitudes(2)), Circuit)
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


def test_a_layer_is_exported_before_it_is_called() -> None:
    layer = Layer(from_qiskit(*CIRCUITS["classifier"]))
    inputs = torch.rand(4, 2)
    exported = torch.export.export(layer, (inputs,)).module()
    assert torch.equal(exported(inputs), layer(inputs))
