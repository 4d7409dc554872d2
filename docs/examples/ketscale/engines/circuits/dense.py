"""`dense`: gates are matrices that torch multiplies with the states of the batch, differentiated by autograd."""

from collections.abc import Callable, Sequence
from math import pi

import torch

from ketscale.engines.circuits.checks import check_request, no_rows
from ketscale.engines.circuits.circuit import Angles, Circuit, Gate

ONE, X, Y, Z = (
    torch.tensor(rows, dtype=torch.complex128)
    for rows in ([[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]])
)
PAULIS = {"I": ONE, "X": X, "Y": Y, "Z": Z}


def rotation(word: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """exp(-i angle/2 word), one for each angle."""
    half = angle[:, None, None] / 2
    return half.cos() * torch.eye(len(word)) - 1j * half.sin() * word


def phase(angle: torch.Tensor) -> torch.Tensor:
    """diag(1, e^(i angle))."""
    return torch.exp(0.5j * angle)[:, None, None] * rotation(Z, angle)


def controlled(gate: torch.Tensor) -> torch.Tensor:
    """The gate where the first wire is 1."""
    return (torch.kron(ONE + Z, ONE) + torch.kron(ONE - Z, gate)) / 2


MATRICES: dict[str, Callable[..., torch.Tensor]] = {
    "Hadamard": lambda: (X + Z) / 2**0.5,
    "PauliX": lambda: X,
    "PauliY": lambda: Y,
    "PauliZ": lambda: Z,
    "S": lambda: phase(constant(pi / 2)),
    "T": lambda: phase(constant(pi / 4)),
    "RX": lambda a: rotation(X, a),
    "RY": lambda a: rotation(Y, a),
    "RZ": lambda a: rotation(Z, a),
    "PhaseShift": phase,
    "Rot": lambda a, b, c: rotation(Z, c) @ rotation(Y, b) @ rotation(Z, a),
    "CNOT": lambda: controlled(X),
    "CZ": lambda: controlled(Z),
    "SWAP": lambda: (torch.eye(4) + torch.kron(X, X) + torch.kron(Y, Y) + torch.kron(Z, Z)) / 2,
    "CRX": lambda a: controlled(rotation(X, a)),
    "CRY": lambda a: controlled(rotation(Y, a)),
    "CRZ": lambda a: controlled(rotation(Z, a)),
    "ControlledPhaseShift": lambda a: controlled(phase(a)),
    "IsingXX": lambda a: rotation(torch.kron(X, X), a),
    "IsingYY": lambda a: rotation(torch.kron(Y, Y), a),
    "IsingZZ": lambda a: rotation(torch.kron(Z, Z), a),
}


def constant(value: float) -> torch.Tensor:
    """An angle that all samples share."""
    return torch.tensor([value], dtype=torch.float64)


def matrix(gate: Gate, angles: Angles) -> torch.Tensor:
    """The matrix of a gate; for each sample, if it depends on an input."""
    if gate.matrix is not None:
        return torch.tensor(gate.matrix, dtype=torch.complex128)
    table = {"input": angles.inputs, "weight": angles.weights[None]}
    given = [constant(c.value) if c.kind == "constant" else table[c.kind][:, c.index] for c in gate.columns]
    return MATRICES[gate.name](*given)


def applied(matrix: torch.Tensor, wires: Sequence[int], states: torch.Tensor) -> torch.Tensor:
    """A matrix on some wires of states (batch, 2, ..., 2)."""
    axes, last = [1 + wire for wire in wires], list(range(-len(wires), 0))
    moved = states.movedim(axes, last)
    product = moved.reshape(len(states), -1, 2 ** len(wires)) @ matrix.to(states.dtype).mT
    return product.reshape(moved.shape).movedim(last, axes)


class Dense:
    """See `Simulator` for the contract."""

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        check_request(circuit, angles, initial)
        batch, size, dtype = len(angles.inputs), 2**circuit.qubits, angles.inputs.dtype.to_complex()
        if batch == 0:
            return no_rows(angles, initial, size, dtype)
        start = torch.eye(1, size, dtype=dtype) if initial is None else initial
        states = start.expand(batch, size).unflatten(1, (2,) * circuit.qubits)
        for gate in circuit.gates:
            states = applied(matrix(gate, angles), gate.wires, states)
        return states.flatten(1)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        check_request(circuit, angles, initial, paulis)
        if len(angles.inputs) == 0:
            return no_rows(angles, initial, len(paulis), angles.inputs.dtype)
        states = self.state(circuit, angles, initial)
        means = []
        for word in paulis:
            image = states.unflatten(1, (2,) * circuit.qubits)
            for wire, letter in enumerate(word):
                image = applied(PAULIS[letter], [wire], image)
            means.append((states.conj() * image.flatten(1)).sum(1).real)
        return torch.stack(means, dim=1)
