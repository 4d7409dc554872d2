"""Random circuits with every gate, and their angles, for the tests on a GPU."""

from __future__ import annotations

import importlib.util
import random

import torch

from ketscale.engines.circuits.circuit import GATES, PERMUTATION, Angles, Circuit, Column, Gate, given

COLUMNS = (*(Column("input", i) for i in range(3)), *(Column("weight", i) for i in range(4)))
CONSTANTS = (Column("constant", value=0.7), Column("constant", value=-2.1))


def unitary(size: int, seed: int) -> list[list[complex]]:
    """A random unitary."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(2, size, size, dtype=torch.float64, generator=generator)
    result: list[list[complex]] = torch.linalg.qr(torch.complex(*parts))[0].tolist()
    return result


def random_circuit(qubits: int, seed: int) -> Circuit:
    """Every gate that fits, given unitaries, controlled gates and permutations, on random wires, over a few columns that
    several gates share.
    """
    rng = random.Random(seed)
    names = [name for name, kind in GATES.items() if kind.wires <= qubits]
    rng.shuffle(names)
    gates = [
        Gate(
            name,
            tuple(rng.sample(range(qubits), GATES[name].wires)),
            tuple(rng.choice((*COLUMNS, *CONSTANTS)) for _ in range(GATES[name].angles)),
        )
        for name in ["Hadamard", *names]
    ]
    for name in ("PauliX", "RY", "IsingXX"):
        wires = min(qubits, GATES[name].wires + 2)
        if wires > GATES[name].wires:
            angles = tuple(rng.choice(COLUMNS) for _ in range(GATES[name].angles))
            gates.insert(
                rng.randrange(len(gates)), Gate(f"C({name})", tuple(rng.sample(range(qubits), wires)), angles)
            )
    targets = min(qubits, 3)
    order = tuple(rng.sample(range(2**targets), 2**targets))
    gates.insert(
        rng.randrange(len(gates)), Gate(PERMUTATION, tuple(rng.sample(range(qubits), targets)), order=order)
    )
    # Qiskit decomposes those of two wires.
    for wires in range(1, 3 if importlib.util.find_spec("qiskit") else 2):
        if wires <= qubits:
            gates.insert(
                rng.randrange(len(gates)), given(unitary(2**wires, seed), *rng.sample(range(qubits), wires))
            )
    return Circuit(qubits, tuple(gates))


def random_words(qubits: int, seed: int) -> tuple[str, ...]:
    """Three random Pauli words, the identity, and one word a second time."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("IXYZ", k=qubits)) for _ in range(3)]
    return (*words, "I" * qubits, words[0])


def random_angles(batch: int, seed: int = 7) -> Angles:
    """In fp64 on the CPU, for circuits over `COLUMNS`."""
    generator = torch.Generator().manual_seed(seed)
    inputs, weights = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((batch, 3), (4,))
    )
    return Angles(inputs, weights)


def random_states(batch: int, qubits: int) -> torch.Tensor:
    """Normalised, (batch, 2**qubits)."""
    generator = torch.Generator().manual_seed(5)
    states = torch.randn(batch, 2**qubits, dtype=torch.complex128, generator=generator)
    return states / states.norm(dim=1, keepdim=True)
