"""Three hundred noisy circuits of all gates and channels against default.mixed, and against Qiskit Aer's density matrices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pennylane as qml
import pytest
from numpy.typing import NDArray
from qiskit import QuantumCircuit
from qiskit.quantum_info import Kraus

import ketscale.jax as on_jax
from ketscale.engines.circuits.circuit import Circuit, Gate
from ketscale.engines.noise import density
from tests.unit.engines.noise import reference
from tests.unit.engines.noise.test_density import drawn
from tests.unit.interop.conftest import exact_jax

__all__ = ["exact_jax"]

# Qiskit's names of gates; Rot is three.
IN_QISKIT = {
    "Hadamard": "h", "PauliX": "x", "PauliY": "y", "PauliZ": "z", "S": "s", "T": "t", "RX": "rx", "RY": "ry", "RZ": "rz",
    "PhaseShift": "p", "CNOT": "cx", "CZ": "cz", "SWAP": "swap", "CRX": "crx", "CRY": "cry", "CRZ": "crz",
    "ControlledPhaseShift": "cp", "IsingXX": "rxx", "IsingYY": "ryy", "IsingZZ": "rzz",
}  # fmt: skip


# Gates of Qiskit that Aer has not.
UNKNOWN = ["crx", "cry", "crz"]


def random(seed: int) -> tuple[Circuit, Any]:
    """A circuit and its angles."""
    generator = np.random.default_rng(seed)
    qubits = int(generator.integers(1, 6))
    circuit = reference.random_circuit(generator, qubits, int(generator.integers(3, 40)))
    return circuit, drawn(circuit, 3, seed)


@pytest.mark.parametrize("seed", range(1000, 1300))
def test_density_matrices_are_those_of_default_mixed(seed: int) -> None:
    circuit, angles = random(seed)
    rows, weights = angles.inputs.detach().numpy(), angles.weights.detach().numpy()
    expected = [reference.density(circuit, row, weights) for row in rows]
    np.testing.assert_allclose(density.density_matrix(circuit, angles).detach(), expected, atol=1e-12)


def aer_error(gate: Gate, numbers: list[float]) -> Any:
    """A channel as Aer makes it."""
    from qiskit_aer.noise import errors

    first = numbers[0] if numbers else 0.0
    if gate.kraus is not None:
        return Kraus([np.array(matrix) for matrix in gate.kraus])
    match gate.name:
        case "BitFlip":
            return errors.pauli_error([("X", first), ("I", 1 - first)])
        case "PhaseFlip":
            return errors.pauli_error([("Z", first), ("I", 1 - first)])
        case "PauliChannel":
            return errors.pauli_error([("I", 1 - sum(numbers)), *zip("XYZ", numbers, strict=True)])
        case "DepolarizingChannel":
            words = 4 ** len(gate.wires)
            return errors.depolarizing_error(first * words / (words - 1), len(gate.wires))
        case "AmplitudeDamping":
            return errors.amplitude_damping_error(first)
        case "GeneralizedAmplitudeDamping":
            return errors.amplitude_damping_error(*numbers)
        case "PhaseDamping":
            return errors.phase_damping_error(first)
        case "ResetError":
            return errors.reset_error(*numbers)
    excited, t1, t2, time = numbers
    return errors.thermal_relaxation_error(t1, t2, time, excited)


def aer_density(circuit: Circuit, inputs: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """The density matrix of one sample by Aer, whose last qubit is the most significant one."""
    from qiskit_aer import AerSimulator

    written = QuantumCircuit(circuit.qubits)
    given = {"input": inputs, "weight": weights}
    for gate in circuit.gates:
        numbers = [
            float(each.value if each.kind == "constant" else given[each.kind][each.index])
            for each in gate.columns
        ]
        wires = [circuit.qubits - 1 - wire for wire in gate.wires]
        if gate.is_channel:
            written.append(aer_error(gate, numbers), wires[::-1])
        elif gate.name == "Rot":
            for turn, angle in zip((written.rz, written.ry, written.rz), numbers, strict=True):
                turn(angle, *wires)
        else:
            getattr(written, IN_QISKIT[gate.name])(*numbers, *wires)
    written.save_density_matrix()
    found = AerSimulator(method="density_matrix").run(written.decompose(UNKNOWN)).result()
    return np.asarray(found.data()["density_matrix"])


@pytest.mark.parametrize("seed", range(2000, 2300))
def test_density_matrices_are_those_of_qiskit_aer(seed: int) -> None:
    pytest.importorskip("qiskit_aer", reason="Qiskit Aer is not installed: make bench-extra")
    circuit, angles = random(seed)
    if circuit.qubits > 1:  # damping of one wire, and then of both
        damping = qml.AmplitudeDamping(0.3, wires=0).kraus_matrices()
        circuit = (
            circuit.kraus(damping, 0)
            .kraus([np.kron(a, b) for a in damping for b in damping], 1, 0)
            .ry(0, 0.4)
        )
    rows, weights = angles.inputs.detach().numpy(), angles.weights.detach().numpy()
    expected = [aer_density(circuit, row, weights) for row in rows]
    np.testing.assert_allclose(density.density_matrix(circuit, angles).detach(), expected, atol=1e-12)


@pytest.mark.usefixtures("exact_jax")
@pytest.mark.parametrize("seed", range(3000, 3020))
def test_jax_agrees_with_default_mixed(seed: int) -> None:
    circuit, angles = random(seed)
    words = reference.random_words(np.random.default_rng(seed), circuit.qubits)
    rows, weights = angles.inputs.detach().numpy(), angles.weights.detach().numpy()
    given = [each for each in (rows, weights) if each.shape[-1]]
    found = jax.jit(on_jax.expval(circuit, words))(*given)
    states = [reference.density(circuit, row, weights) for row in rows]
    expected = [[np.trace(reference.word_matrix(word) @ state).real for word in words] for state in states]
    np.testing.assert_allclose(found, expected if circuit.inputs else expected[0], atol=1e-12)
