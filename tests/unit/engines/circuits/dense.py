"""A dense reference of its own: gates as exponentials of their generators, which torch differentiates."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Circuit, Gate, given_matrix

Matrix = NDArray[np.complex128]

EXACT = torch.complex128
I2, X, Y, Z = (
    torch.tensor(rows, dtype=EXACT)
    for rows in ([[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]])
)
PAULI = {"I": I2, "X": X, "Y": Y, "Z": Z}
ZERO, ONE = (I2 + Z) / 2, (I2 - Z) / 2
kron = torch.kron
FIXED = {
    "Hadamard": (X + Z) / 2**0.5, "PauliX": X, "PauliY": Y, "PauliZ": Z,
    "S": ZERO + 1j * ONE, "T": ZERO + 1j**0.5 * ONE,
    "CNOT": kron(ZERO, I2) + kron(ONE, X), "CZ": kron(ZERO, I2) + kron(ONE, Z),
    "SWAP": (kron(I2, I2) + kron(X, X) + kron(Y, Y) + kron(Z, Z)) / 2,
}  # fmt: skip
GENERATORS = {
    "RX": X / 2, "RY": Y / 2, "RZ": Z / 2, "PhaseShift": -ONE,
    "CRX": kron(ONE, X / 2), "CRY": kron(ONE, Y / 2), "CRZ": kron(ONE, Z / 2), "ControlledPhaseShift": -kron(ONE, ONE),
    "IsingXX": kron(X, X) / 2, "IsingYY": kron(Y, Y) / 2, "IsingZZ": kron(Z, Z) / 2,
}  # fmt: skip


@cache
def _spectrum(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    values, vectors = torch.linalg.eigh(GENERATORS[name])
    return values, vectors


def _turn(name: str, angles: torch.Tensor) -> torch.Tensor:
    """exp(-i angle generator) for each of the angles."""
    values, vectors = _spectrum(name)
    return (vectors * torch.exp(-1j * angles[:, None, None] * values)) @ vectors.mH


def _matrix(gate: Gate, angles: list[torch.Tensor]) -> torch.Tensor:
    """The matrix of a gate without its controls, or one for each sample."""
    if (own := given_matrix(gate)) is not None:
        return torch.from_numpy(own)
    if gate.base == "Rot":
        first, second, third = map(_turn, ("RZ", "RY", "RZ"), angles)
        return third @ second @ first
    return _turn(gate.base, angles[0]) if angles else FIXED[gate.base]


def final_states(
    circuit: Circuit, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None = None
) -> torch.Tensor:
    """The final state of each sample, one gate after the other; wire 0 is the most significant bit."""
    batch, size = len(inputs), 2**circuit.qubits
    start = torch.eye(size, dtype=EXACT)[0] if initial is None else initial
    states = start.expand(batch, size).reshape(batch, *[2] * circuit.qubits)
    for gate in circuit.gates:
        angles = [
            inputs[:, c.index] if c.kind == "input"
            else weights[c.index].expand(batch) if c.kind == "weight"
            else inputs.new_full((batch,), c.value)
            for c in gate.columns
        ]  # fmt: skip
        matrix, wires = _matrix(gate, angles), tuple(wire + 1 for wire in gate.wires)
        first = tuple(range(1, len(wires) + 1))
        axes = states.movedim(wires, first)
        rows, target = axes.reshape(batch, 2 ** len(wires), size >> len(wires)), matrix.shape[-1]
        # Controls come first, so that where all of them are 1 the rows are the last.
        rows = torch.cat([rows[:, :-target], matrix @ rows[:, -target:]], 1)
        states = rows.reshape(axes.shape).movedim(first, wires)
    return states.reshape(batch, size)


def means(states: torch.Tensor, words: tuple[str, ...]) -> torch.Tensor:
    """The expectation values of words."""
    matrices = [torch.from_numpy(dense_word(word)) for word in words]
    return torch.stack([(states.conj() * (states @ matrix.T)).sum(1).real for matrix in matrices], 1)


def mixed(states: torch.Tensor, coefficients: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Normalised superpositions of states, their mirror images, and a constant."""
    qubits = states.shape[1].bit_length() - 1
    mirrored = states.view(-1, *[2] * qubits).permute(0, *range(qubits, 0, -1)).reshape(states.shape)
    result = coefficients[0] * states + coefficients[1] * mirrored + constant
    return result / (result.norm(dim=1, keepdim=True) + 1e-9)


def dense_word(word: str) -> Matrix:
    """A Pauli word's matrix."""
    result: Matrix = reduce(kron, (PAULI[letter] for letter in word)).numpy()
    return result
