"""Circuits gate by gate with dense matrices in complex128 and plain autograd: what `fused` on a GPU is compared with.

It shares nothing with `fused` but the description of circuits. Matrices are PennyLane's; the first wire is the most
significant bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ketscale.engines.circuits.circuit import Circuit, Column, Gate

PAULI = {
    "I": torch.eye(2, dtype=torch.complex128),
    "X": torch.tensor([[0, 1], [1, 0]], dtype=torch.complex128),
    "Y": torch.tensor([[0, -1j], [1j, 0]], dtype=torch.complex128),
    "Z": torch.tensor([[1, 0], [0, -1]], dtype=torch.complex128),
}
FIXED = {
    "Hadamard": (PAULI["X"] + PAULI["Z"]) / 2**0.5,
    "PauliX": PAULI["X"],
    "PauliY": PAULI["Y"],
    "PauliZ": PAULI["Z"],
    "S": torch.diag(torch.tensor([1, 1j])).to(torch.complex128),
    "T": torch.diag(torch.exp(torch.tensor([0, 0.25j * torch.pi], dtype=torch.complex128))),
    "CNOT": torch.block_diag(PAULI["I"], PAULI["X"]),
    "CZ": torch.block_diag(PAULI["I"], PAULI["Z"]),
    "SWAP": torch.eye(4, dtype=torch.complex128)[[0, 2, 1, 3]],
}


def word(letters: str) -> torch.Tensor:
    """The matrix of a Pauli word."""
    matrix = torch.ones(1, 1, dtype=torch.complex128)
    for letter in letters:
        matrix = torch.kron(matrix, PAULI[letter])
    return matrix


def rotation(angle: torch.Tensor, letters: str) -> torch.Tensor:
    """exp(-i angle/2 P) for angles (rows,): (rows, d, d)."""
    pauli = word(letters).to(angle.device)
    identity = torch.eye(len(pauli), dtype=pauli.dtype, device=angle.device)
    half = angle.reshape(-1, 1, 1) / 2
    return torch.cos(half) * identity - 1j * torch.sin(half) * pauli


def controlled(angle: torch.Tensor, letter: str) -> torch.Tensor:
    """A rotation of the second wire where the first is 1."""
    inner = rotation(angle, letter)
    identity = PAULI["I"].to(angle.device).expand(len(inner), 2, 2)
    top = torch.cat([identity, torch.zeros_like(inner)], 2)
    return torch.cat([top, torch.cat([torch.zeros_like(inner), inner], 2)], 1)


def phase(angle: torch.Tensor) -> torch.Tensor:
    """diag(1, exp(i angle))."""
    return torch.diag_embed(torch.stack([torch.ones_like(angle) + 0j, torch.exp(1j * angle)], 1))


ROTATIONS: dict[str, Callable[..., torch.Tensor]] = {
    **{f"R{letter}": lambda a, letter=letter: rotation(a, letter) for letter in "XYZ"},
    **{f"CR{letter}": lambda a, letter=letter: controlled(a, letter) for letter in "XYZ"},
    **{f"Ising{letter * 2}": lambda a, letter=letter: rotation(a, letter * 2) for letter in "XYZ"},
    "PhaseShift": phase,
    "ControlledPhaseShift": lambda a: torch.diag_embed(
        torch.stack([*[torch.ones_like(a) + 0j] * 3, torch.exp(1j * a)], 1)
    ),
    "Rot": lambda p, t, o: rotation(o, "Z") @ rotation(t, "Y") @ rotation(p, "Z"),
}


def angle_of(column: Column, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """(rows,) or a single angle."""
    match column.kind:
        case "input":
            return inputs[:, column.index]
        case "weight":
            return weights[column.index]
    return inputs.new_tensor(column.value)


def matrix_of(gate: Gate, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """(rows or 1, d, d), with one row for each sample where an angle is an input."""
    if gate.order is not None:
        identity = torch.eye(len(gate.order), dtype=torch.complex128, device=inputs.device)
        return identity[:, list(gate.order)][None]
    if gate.controls:
        inner = matrix_of(
            replace(gate, name=gate.base, wires=gate.wires[len(gate.controls) :]), inputs, weights
        )
        rest = (2 ** len(gate.controls) - 1) * inner.shape[-1]
        outer = torch.eye(rest + inner.shape[-1], dtype=inner.dtype, device=inputs.device)
        outer = outer.repeat(len(inner), 1, 1)
        outer[:, rest:, rest:] = inner
        return outer
    if gate.matrix is not None:
        return torch.tensor(gate.matrix, dtype=torch.complex128, device=inputs.device)[None]
    if gate.name in FIXED:
        return FIXED[gate.name].to(inputs.device)[None]
    angles = [angle_of(column, inputs, weights).expand(len(inputs)) for column in gate.columns]
    return ROTATIONS[gate.name](*angles)


def state(
    circuit: Circuit, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None = None
) -> torch.Tensor:
    """The final states (rows, 2**qubits), starting from |0...0> or the given ones."""
    rows, size = len(inputs), 2**circuit.qubits
    if initial is None:
        initial = torch.zeros(size, dtype=torch.complex128, device=inputs.device)
        initial[0] = 1
    psi = initial.expand(rows, size).reshape(rows, *[2] * circuit.qubits)
    for gate in circuit.gates:
        matrix = matrix_of(gate, inputs, weights)
        wires = [1 + wire for wire in gate.wires]
        last = list(range(-len(wires), 0))
        axes = psi.movedim(wires, last)
        flat = axes.reshape(rows, -1, matrix.shape[-1])
        psi = (flat @ matrix.transpose(1, 2)).reshape(axes.shape).movedim(last, wires)
    return psi.reshape(rows, size)


def expval(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    words: tuple[str, ...],
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Expectation values (rows, words)."""
    psi = state(circuit, inputs, weights, initial)
    values = []
    for letters in words:
        tensor = psi.reshape(len(psi), *[2] * circuit.qubits)
        for wire, letter in enumerate(letters):
            if letter != "I":
                tensor = (tensor.movedim(1 + wire, -1) @ PAULI[letter].to(psi.device).T).movedim(-1, 1 + wire)
        values.append((psi.conj() * tensor.reshape(psi.shape)).sum(1).real)
    return torch.stack(values, 1)
