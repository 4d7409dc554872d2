"""The circuits of the Hydra and Mamba models, besides `ansaetze.qlcu_ansatz`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Literal

from ketscale.engines.circuits.circuit import Circuit, Column, Gate


def shift(qubits: int) -> list[Gate]:
    """SWAP(0, 1), SWAP(1, 2), ...: the first wire moves to the end."""
    return [Gate("SWAP", (w, w + 1)) for w in range(qubits - 1)]


def skip_circuit(qubits: int) -> Circuit:
    """RX on all wires, then RY on all, then RZ on all, with 3n weights."""
    wires, weights = _wires(qubits), _columns("weight", 0)
    return Circuit(
        qubits, tuple(gate for name in ("RX", "RY", "RZ") for gate in _rotations(name, wires, weights))
    )


def amplitude_circuits(qubits: int, layers: int) -> tuple[Circuit, Circuit, Circuit]:
    """The state-space, gate and skip circuits of `mamba`.

    State-space: its weights are layers * 4n angles, then b (n), then c (n). Each layer has RY and RZ on each wire in turn,
    a chain of CRX, then RY(b), RX and RZ(c) on all wires. It uses 4n - 1 angles, so the last `layers` angles are unused.
    Gate: RY on all wires, a chain of CNOT. Skip: RZ on all wires.
    """
    n, wires, chain = qubits, _wires(qubits), _ring(qubits)[:-1]
    angles = _columns("weight", 0)
    gates = []
    for _ in range(layers):
        for wire in wires:
            gates += [gate for name in ("RY", "RZ") for gate in _rotations(name, [wire], angles)]
        gates += _rotations("CRX", chain, angles)
        gates += _rotations("RY", wires, _columns("weight", 4 * n * layers))
        gates += _rotations("RX", wires, angles)
        gates += _rotations("RZ", wires, _columns("weight", 4 * n * layers + n))
    gate = [*_rotations("RY", wires, _columns("weight", 0)), *(Gate("CNOT", pair) for pair in chain)]
    skip = _rotations("RZ", wires, _columns("weight", 0))
    return Circuit(n, tuple(gates)), Circuit(n, tuple(gate)), Circuit(n, tuple(skip))


def angle_circuits(qubits: int, layers: int) -> tuple[Circuit, Circuit, Circuit]:
    """The state-space, gate and skip circuits of `mamba_hybrid`; the last one is `skip_circuit`.

    State-space: its inputs are 4n angles a layer, its weights b, c and dt (n each). Each layer has RY on all wires, IsingXX
    on the ring, RY(b), RY on all wires, IsingYY on the ring, RZ(c), RX(dt). Gate: in each layer RX on all wires, a chain of
    CRZ, RY on all, CRZ(n-1 -> 0).
    """
    n, wires, ring = qubits, _wires(qubits), _ring(qubits)
    inputs, angles = _columns("input", 0), _columns("weight", 0)
    gates, gate = [], []
    for _ in range(layers):
        gates += _rotations("RY", wires, inputs)
        gates += _rotations("IsingXX", ring, inputs)
        gates += _rotations("RY", wires, _columns("weight", 0))
        gates += _rotations("RY", wires, inputs)
        gates += _rotations("IsingYY", ring, inputs)
        gates += _rotations("RZ", wires, _columns("weight", n))
        gates += _rotations("RX", wires, _columns("weight", 2 * n))
        gate += _rotations("RX", wires, angles)
        gate += _rotations("CRZ", ring[:-1], angles)
        gate += _rotations("RY", wires, angles)
        gate += _rotations("CRZ", ring[-1:], angles)
    return Circuit(n, tuple(gates)), Circuit(n, tuple(gate)), skip_circuit(n)


def _wires(qubits: int) -> list[tuple[int, ...]]:
    return [(w,) for w in range(qubits)]


def _ring(qubits: int) -> list[tuple[int, ...]]:
    """A chain of neighbours, and then the last wire with the first."""
    return [(w, (w + 1) % qubits) for w in range(qubits)]


def _columns(kind: Literal["input", "weight"], first: int) -> Iterator[Column]:
    return (Column(kind, number) for number in count(first))


def _rotations(name: str, places: Iterable[tuple[int, ...]], columns: Iterator[Column]) -> list[Gate]:
    """A gate on each of these wires, or pairs of wires, with the next angle."""
    return [Gate(name, wires, (next(columns),)) for wires in places]
