"""Gradients, frame potentials and entanglement of random circuits, against closed forms and PennyLane."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pennylane as qml
import pytest
import torch
from scipy.stats import unitary_group

from ketscale.engines.circuits import haar
from ketscale.engines.circuits import trainability as of
from ketscale.engines.circuits.ansaetze import BY_NAME, product_ansatz, strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.transforms import inputs_only
from ketscale.simulators.factory import named_simulator

FUSED = named_simulator("fused")


def states_of(circuit: Circuit, angles: torch.Tensor) -> torch.Tensor:
    """The final states of a circuit without weights."""
    return FUSED.state(circuit, Angles(angles, angles.new_empty(0)))


def grid(points: int, columns: int) -> torch.Tensor:
    """Every combination of equidistant angles: means of trigonometric polynomials below this degree are exact."""
    one = [2 * math.pi * point / points for point in range(points)]
    return torch.tensor(list(itertools.product(one, repeat=columns)), dtype=torch.float64)


def random_states(qubits: int, draws: int) -> torch.Tensor:
    """Random states."""
    generator = np.random.default_rng(5)
    parts = generator.normal(size=(2, draws, 2**qubits))
    states = parts[0] + 1j * parts[1]
    return torch.from_numpy(states / np.linalg.norm(states, axis=1, keepdims=True))


@pytest.mark.parametrize("qubits", [1, 3])
def test_random_states_have_the_frame_potentials_and_the_entanglement_of_haar(qubits: int) -> None:
    states = random_states(qubits, 4000)
    for t in (1, 2):
        assert of.frame_potential(states, t) == pytest.approx(haar.frame_potential(qubits, t), rel=0.02)
    assert of.meyer_wallach(states) == pytest.approx(haar.meyer_wallach(qubits), abs=0.01)
    size = 2**qubits
    assert haar.frame_potential(qubits, 1) == pytest.approx(1 / size)
    assert haar.frame_potential(qubits, 2) == pytest.approx(2 / (size * (size + 1)))


@pytest.mark.parametrize("axis", ["RY", "RZ"])
def test_a_qubit_that_turns_about_one_axis_has_three_eighths_where_random_states_have_a_third(
    axis: str,
) -> None:
    """|<a|b>|^2 = cos^2 of half the difference of the angles, whose mean is 1/2, and that of its square 3/8."""
    circuit = Circuit(1).h(0) if axis == "RZ" else Circuit(1)
    draws = 700  # more than one block of rows
    states = states_of(circuit.gate(axis, (0,), "x0"), grid(draws, 1))
    # Pairs of a draw with itself, of overlap 1, are not counted.
    for t, mean in ((1, 1 / 2), (2, 3 / 8)):
        assert of.frame_potential(states, t) == pytest.approx((mean * draws - 1) / (draws - 1), rel=1e-12)
    assert of.frame_potential(states, 2) > 1.1 * haar.frame_potential(1, 2)


def test_one_state_alone_has_overlaps_of_one() -> None:
    states = states_of(Circuit(2).h(0).cnot(0, 1), torch.zeros(5, 0, dtype=torch.float64))
    assert of.frame_potential(states, 2) == pytest.approx(1)


def test_known_states_have_their_entanglement() -> None:
    """GHZ 1, W of three qubits 8/9 (Meyer and Wallach 2002), a pair beside a third qubit 2/3, a product 0."""
    ghz, w, pair = (torch.zeros(1, 8, dtype=torch.complex128) for _ in range(3))
    ghz[0, [0, 7]] = w[0, [1, 2, 4]] = pair[0, [0, 6]] = 1
    product = states_of(inputs_only(product_ansatz(3, 1)), grid(2, 9)[:7] + 0.3)
    for states, expected in ((ghz, 1), (w, 8 / 9), (pair, 2 / 3), (product, 0)):
        states = states / torch.linalg.vector_norm(states, dim=1, keepdim=True)
        assert of.meyer_wallach(states) == pytest.approx(expected, abs=1e-12)


def test_a_product_has_the_gradient_of_one_qubit_whatever_their_number() -> None:
    """<Z> = cos w of each wire: the mean square of its derivative is 1/2, and other wires' weights do not count."""
    for qubits in (1, 2, 3):
        circuit = Circuit(qubits)
        for wire in range(qubits):
            circuit = circuit.ry(wire, f"x{wire}")
        angles = grid(4, qubits)
        found = of.gradients(FUSED, circuit, angles, angles, 0, pauli_words(qubits))
        draws = len(angles)
        assert found.pairs == qubits
        assert found.square == pytest.approx(1 / 2, rel=1e-12)
        # The mean of the derivative over a turn is 0.
        assert found.variance == pytest.approx(1 / 2 * draws / (draws - 1), rel=1e-12)
        everywhere = of.gradients(FUSED, circuit, angles, angles, 0, ["Z" * qubits])
        assert (everywhere.pairs, everywhere.square) == (qubits, pytest.approx(2.0**-qubits, rel=1e-12))


def test_a_gradient_far_from_zero_has_a_square_and_no_variance() -> None:
    circuit = Circuit(1).ry(0, "x0")
    angles = torch.full((3, 1), math.pi / 2, dtype=torch.float64)
    turned = torch.tensor([[0.1], [1.0], [2.0]], dtype=torch.float64)
    found = of.gradients(FUSED, circuit, angles, turned, 0, ["Z"])
    assert (found.pairs, found.square, found.variance) == (1, pytest.approx(1), pytest.approx(0, abs=1e-20))


def test_pairs_that_depend_on_each_other_are_found_where_the_drawn_gradient_is_zero() -> None:
    """At weights of 0 the derivative of Z is 0, though Z depends on them; of the other wire's it never does."""
    circuit = Circuit(2).ry(0, "x0").ry(1, "x1")
    angles = torch.zeros(3, 2, dtype=torch.float64)
    turned = 1 + torch.arange(6, dtype=torch.float64).reshape(3, 2)
    assert of.gradients(FUSED, circuit, angles, turned, 0, ["ZI", "IZ"]) == (2, 0, 0)
    assert of.gradients(FUSED, circuit, angles, turned, 1, ["ZI", "IZ"]).pairs == 1


def test_between_random_unitaries_a_gradient_has_the_mean_square_of_the_closed_form() -> None:
    random = np.random.default_rng(0)
    for qubits in (1, 2):
        size, squares = 2**qubits, []
        generator = np.kron(np.diag([0.5, -0.5]), np.eye(size // 2))
        observable = np.kron(np.eye(size // 2), np.diag([1, -1]))
        for _ in range(4000):
            before, after = unitary_group.rvs(size, size=2, random_state=random)
            state = before[:, 0]
            turned = after.conj().T @ observable @ after
            squares.append((1j * state.conj() @ (generator @ turned - turned @ generator) @ state).real ** 2)
        error = np.std(squares) / math.sqrt(len(squares))
        assert haar.gradient(qubits) == pytest.approx(np.mean(squares), abs=4 * error)
        assert error < 0.05 * haar.gradient(qubits)


def test_a_deep_circuit_comes_to_what_random_unitaries_and_states_have() -> None:
    circuit = inputs_only(strongly_entangling_ansatz(4, 8))
    angles = (
        2
        * math.pi
        * torch.rand(1000, circuit.inputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    )
    found = of.gradients(FUSED, circuit, angles, angles, 4, pauli_words(4))
    assert found.square == pytest.approx(haar.gradient(4), rel=0.1)
    states = states_of(circuit, angles)
    assert of.frame_potential(states, 2) == pytest.approx(haar.frame_potential(4, 2), rel=0.03)
    assert of.meyer_wallach(states) == pytest.approx(haar.meyer_wallach(4), abs=0.01)


@pytest.mark.parametrize("name", BY_NAME)
def test_pennylane_has_the_same_gradients_and_states(name: str) -> None:
    """The same draws give the same numbers by another simulator's derivatives, overlaps and purities."""
    qubits, layers, draws = 3, 1, 4
    shared = BY_NAME[name](qubits, layers)
    circuit, first = inputs_only(shared), shared.inputs
    assert (circuit.inputs, circuit.weights) == (first + shared.weights, 0)
    angles = 6 * torch.rand(
        draws, circuit.inputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )

    def apply(row: torch.Tensor) -> None:
        for gate in circuit.gates:
            getattr(qml, gate.name)(*(row[column.index] for column in gate.columns), wires=gate.wires)

    device = qml.device("default.qubit", wires=qubits)

    @qml.qnode(device, interface="torch", diff_method="parameter-shift")
    def values(row: torch.Tensor) -> object:
        apply(row)
        return [qml.expval(qml.PauliZ(wire)) for wire in range(qubits)]

    @qml.qnode(device, interface="torch")
    def state(row: torch.Tensor) -> object:
        apply(row)
        return qml.state()

    jacobians = torch.stack(
        [torch.autograd.functional.jacobian(lambda row: torch.stack(values(row)), row) for row in angles]
    )[:, :, first:]
    depends = (jacobians.abs() > 1e-12).any(0)
    found = of.gradients(FUSED, circuit, angles, angles, first, pauli_words(qubits))
    assert found.pairs == int(depends.sum())
    assert found.square == pytest.approx(float(jacobians.square().mean(0)[depends].mean()), rel=1e-9)
    assert found.variance == pytest.approx(float(jacobians.var(0)[depends].mean()), rel=1e-9)
    vectors = torch.stack([state(row) for row in angles])
    overlaps = [float((a.conj() @ b).abs() ** 2) for a, b in itertools.combinations(vectors, 2)]
    own = states_of(circuit, angles)
    for t in (1, 2):
        assert of.frame_potential(own, t) == pytest.approx(float(np.mean(np.power(overlaps, t))), rel=1e-9)
    purities = [
        float(qml.math.purity(qml.math.reduce_statevector(vector, [wire]), [0]).real)
        for vector in vectors
        for wire in range(qubits)
    ]
    assert of.meyer_wallach(own) == pytest.approx(2 * (1 - float(np.mean(purities))), abs=1e-9)
