"""Noisy circuits at random, and what PennyLane's default.mixed makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pennylane as qml
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import CHANNELS, GATES, Circuit, Gate

NAMES = [name for name in CHANNELS if name != "Readout"]
THERMAL = (0.2, 50.0, 70.0, 20.0)
PAULIS = [np.eye(2), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])]


def random_circuit(generator: np.random.Generator, qubits: int, gates: int) -> Circuit:
    """Gates and channels of all kinds, of which about one angle or strength in four is a constant."""
    circuit, inputs, weights = Circuit(qubits), 0, 0
    for _ in range(gates):
        name = str(generator.choice([*GATES, *NAMES, *NAMES]))
        kind = GATES.get(name) or CHANNELS[name]
        both = name == "DepolarizingChannel" and qubits > 1 and generator.random() < 0.5
        if kind.wires > qubits:
            continue
        wires = tuple(map(int, generator.permutation(qubits)[: 2 if both else kind.wires]))
        columns: list[str | float] = []
        for _ in range(kind.angles):
            drawn = generator.random()
            if drawn < 0.25:
                columns.append(float(generator.random() * 0.3))
            elif drawn < 0.6:
                columns.append(f"x{inputs}")
                inputs += 1
            else:
                columns.append(f"w{weights}")
                weights += 1
        circuit = circuit.gate(name, wires, *(THERMAL if name == "ThermalRelaxationError" else columns))
    return circuit


def random_words(generator: np.random.Generator, qubits: int, count: int = 4) -> tuple[str, ...]:
    """Pauli words."""
    return tuple("".join(generator.choice(list("IXYZ"), qubits)) for _ in range(count))


def kraus(gate: Gate, strengths: Sequence[float]) -> list[NDArray[np.complex128]] | None:
    """The Kraus operators of channels that PennyLane has under no such name."""
    if gate.kraus is not None:
        return [np.array(matrix) for matrix in gate.kraus]
    if gate.name == "PauliChannel":
        shares = [1 - sum(strengths), *strengths]
        return [np.sqrt(share) * matrix for share, matrix in zip(shares, PAULIS, strict=True)]
    if len(gate.wires) == 2:
        (p,) = strengths
        words = [np.kron(a, b) for a in PAULIS for b in PAULIS]
        return [np.sqrt(1 - p if number == 0 else p / 15) * word for number, word in enumerate(words)]
    return None


def density(
    circuit: Circuit, inputs: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """The density matrix of one sample by default.mixed."""

    @qml.qnode(qml.device("default.mixed", wires=circuit.qubits))
    def node() -> qml.measurements.StateMP:
        for gate in circuit.gates:
            given = {"input": inputs, "weight": weights}
            numbers = [
                float(each.value if each.kind == "constant" else given[each.kind][each.index])
                for each in gate.columns
            ]
            operators = (
                kraus(gate, numbers)
                if gate.is_channel
                and (gate.name not in NAMES or not hasattr(qml, gate.name) or len(gate.wires) == 2)
                else None
            )
            wires = list(gate.wires)
            if operators is not None:
                qml.QubitChannel(operators, wires=wires)
            else:
                getattr(qml, "Toffoli" if gate.name == "C(PauliX)" else gate.name)(*numbers, wires=wires)
        return qml.density_matrix(range(circuit.qubits))

    return np.asarray(node())


def word_matrix(word: str) -> NDArray[np.complex128]:
    """A Pauli word as a matrix."""
    made = np.eye(1, dtype=complex)
    for letter in word:
        made = np.kron(made, PAULIS["IXYZ".index(letter)])
    return made
