"""The circuits of the Hydra and Mamba models, besides `ansaetze.qlcu_ansatz`."""

from __future__ import annotations

from collections.abc import Iterator

from ketscale.engines.circuits.circuit import Circuit, Column, Gate


def shift(qubits: int) -> list[Gate]:
    """SWAP(0, 1), SWAP(1, 2), ...: the first wire moves to the end."""
    return [Gate("SWAP", (w, w + 1)) for w in range(qubits - 1)]


def flip(qubits: int) -> list[Gate]:
    """The wires in reverse order."""
    return [Gate("SWAP", (w, qubits - 1 - w)) for w in range(qubits // 2)]


def skip_circuit(qubits: int) -> Circuit:
    """RX on all wires, then RY on all, then RZ on all, with 3n weights."""
    return Circuit(
        qubits,
        tuple(
            Gate(name, (w,), (Column("weight", i * qubits + w),))
            for i, name in enumerate(("RX", "RY", "RZ"))
            for w in range(qubits)
        ),
    )


def _on_all(name: str, qubits: int, columns: Iterator[Column]) -> list[Gate]:
    return [Gate(name, (w,), (next(columns),)) for w in range(qubits)]


def _columns(kind: str, first: int, count: int) -> Iterator[Column]:
    return iter([Column(kind, first + i) for i in range(count)])  # type: ignore[arg-type]


def amplitude_ssm(qubits: int, layers: int) -> Circuit:
    """The state-space circuit of `mamba`: its weights are layers * 4n angles, then b (n), then c (n).

    Each layer has RY and RZ on each wire in turn, a chain of CRX, then RY(b), RX and RZ(c) on all wires. It uses
    4n - 1 angles, so the last `layers` angles are unused.
    """
    n = qubits
    columns = _columns("weight", 0, 4 * n * layers)
    gates = []
    for _ in range(layers):
        for w in range(n):
            gates += [Gate(name, (w,), (next(columns),)) for name in ("RY", "RZ")]
        gates += [Gate("CRX", (w, w + 1), (next(columns),)) for w in range(n - 1)]
        gates += _on_all("RY", n, _columns("weight", 4 * n * layers, n))
        gates += _on_all("RX", n, columns)
        gates += _on_all("RZ", n, _columns("weight", 4 * n * layers + n, n))
    return Circuit(n, tuple(gates))


def amplitude_gate(qubits: int) -> Circuit:
    """The gate circuit of `mamba`: RY on all wires, a chain of CNOT."""
    chain = [Gate("CNOT", (w, w + 1)) for w in range(qubits - 1)]
    return Circuit(qubits, (*_on_all("RY", qubits, _columns("weight", 0, qubits)), *chain))


def amplitude_skip(qubits: int) -> Circuit:
    """The skip circuit of `mamba`: RZ on all wires."""
    return Circuit(qubits, tuple(_on_all("RZ", qubits, _columns("weight", 0, qubits))))


def angle_ssm(qubits: int, layers: int) -> Circuit:
    """The state-space circuit of `mamba_hybrid`: its inputs are 4n angles a layer, its weights b, c and dt (n each).

    Each layer has RY on all wires, IsingXX on the ring, RY(b), RY on all wires, IsingYY on the ring, RZ(c), RX(dt).
    """
    n = qubits
    inputs = _columns("input", 0, 4 * n * layers)
    gates = []
    for _ in range(layers):
        gates += _on_all("RY", n, inputs)
        gates += [Gate("IsingXX", (w, (w + 1) % n), (next(inputs),)) for w in range(n)]
        gates += _on_all("RY", n, _columns("weight", 0, n))
        gates += _on_all("RY", n, inputs)
        gates += [Gate("IsingYY", (w, (w + 1) % n), (next(inputs),)) for w in range(n)]
        gates += _on_all("RZ", n, _columns("weight", n, n))
        gates += _on_all("RX", n, _columns("weight", 2 * n, n))
    return Circuit(n, tuple(gates))


def angle_gate(qubits: int, layers: int) -> Circuit:
    """The gate circuit of `mamba_hybrid`: in each layer RX on all wires, a chain of CRZ, RY on all, CRZ(n-1 -> 0)."""
    n = qubits
    columns = _columns("weight", 0, 3 * n * layers)
    gates = []
    for _ in range(layers):
        gates += _on_all("RX", n, columns)
        gates += [Gate("CRZ", (w, w + 1), (next(columns),)) for w in range(n - 1)]
        gates += _on_all("RY", n, columns)
        gates += [Gate("CRZ", (n - 1, 0), (next(columns),))]
    return Circuit(n, tuple(gates))


def amplitude_circuits(qubits: int, layers: int) -> tuple[Circuit, Circuit, Circuit]:
    """The state-space, gate and skip circuits of `mamba`."""
    return amplitude_ssm(qubits, layers), amplitude_gate(qubits), amplitude_skip(qubits)


def angle_circuits(qubits: int, layers: int) -> tuple[Circuit, Circuit, Circuit]:
    """The state-space, gate and skip circuits of `mamba_hybrid`."""
    return angle_ssm(qubits, layers), angle_gate(qubits, layers), skip_circuit(qubits)
