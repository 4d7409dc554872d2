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
from ketscale.engines.circuits.ansaetze import BY_NAME
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.transforms import inputs_only
from ketscale.simulators.factory import named_simulator

FUSED = named_simulator("fused")


def states_of(circuit: Circuit, angles: torch.Tensor) -> torch.Tensor:
    """The final states of a circuit without weights."""
    return FUSED.state(circuit, Angles(angles, angles.new_empty(0)))


@pytest.mark.parametrize("qubits", [1, 3])
def test_random_states_have_the_frame_potentials_and_the_entanglement_of_haar(qubits: int) -> None:
    parts = np.random.default_rng(5).normal(size=(2, 4000, 2**qubits))
    states = torch.nn.functional.normalize(torch.from_numpy(parts[0] + 1j * parts[1]))
    for t in (1, 2):
        exact = math.factorial(t) / math.prod(2**qubits + k for k in range(t))
        assert haar.frame_potential(qubits, t) == pytest.approx(exact)
        assert of.frame_potential(states, t) == pytest.approx(exact, rel=0.02)
    assert of.meyer_wallach(states) == pytest.approx((2**qubits - 2) / (2**qubits + 1), abs=0.01)


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


@pytest.mark.parametrize("name", BY_NAME)
def test_pennylane_has_the_same_gradients_and_states(name: str) -> None:
    """The same draws give the same numbers by another simulator's derivatives, overlaps and purities."""
    qubits, draws = 3, 4
    shared = BY_NAME[name](qubits, 1)
    circuit, first = inputs_only(shared), shared.inputs
    drawn = torch.rand(draws, circuit.inputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    angles = 6 * drawn

    @qml.qnode(qml.device("default.qubit", wires=qubits), interface="torch")
    def both(row: torch.Tensor) -> object:
        for gate in circuit.gates:
            getattr(qml, gate.name)(*(row[column.index] for column in gate.columns), wires=gate.wires)
        return [qml.state(), *(qml.expval(qml.PauliZ(wire)) for wire in range(qubits))]

    jacobians = torch.stack(
        [torch.autograd.functional.jacobian(lambda row: torch.stack(both(row)[1:]), row) for row in angles]
    )[:, :, first:]
    depends = (jacobians.abs() > 1e-12).any(0)
    found = of.gradients(FUSED, circuit, angles, angles, first, pauli_words(qubits))
    assert found.pairs == int(depends.sum())
    assert found.square == pytest.approx(float(jacobians.square().mean(0)[depends].mean()), rel=1e-9)
    assert found.variance == pytest.approx(float(jacobians.var(0)[depends].mean()), rel=1e-9)
    vectors, own = torch.stack([both(row)[0] for row in angles]), states_of(circuit, angles)
    overlaps = [float((a.conj() @ b).abs() ** 2) for a, b in itertools.combinations(vectors, 2)]
    for t in (1, 2):
        assert of.frame_potential(own, t) == pytest.approx(float(np.mean(np.power(overlaps, t))), rel=1e-9)
    purities = [
        float(qml.math.purity(qml.math.reduce_statevector(vector, [wire]), [0]).real)
        for vector, wire in itertools.product(vectors, range(qubits))
    ]
    assert of.meyer_wallach(own) == pytest.approx(2 * (1 - float(np.mean(purities))), abs=1e-9)
