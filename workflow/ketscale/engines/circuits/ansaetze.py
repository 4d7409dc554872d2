"""Ansaetze: circuits of a given number of qubits and layers that models and tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

from ketscale.engines.circuits.circuit import Circuit, Column, Gate


def vqc_ansatz(qubits: int, layers: int) -> Circuit:
    """RY(input) on every wire, then `layers` of RY(weight) on every wire and a CNOT ring 0->1->...->0.

    With one qubit there is no ring; with two it is CNOT(0, 1), CNOT(1, 0).
    """
    gates = [Gate("RY", (w,), (Column("input", w),)) for w in range(qubits)]
    for layer in range(layers):
        gates += [Gate("RY", (w,), (Column("weight", layer * qubits + w),)) for w in range(qubits)]
        if qubits > 1:
            gates += [Gate("CNOT", (w, (w + 1) % qubits)) for w in range(qubits)]
    return Circuit(qubits, tuple(gates))


def strongly_entangling_ansatz(qubits: int, layers: int) -> Circuit:
    """RX(input) on every wire, then strongly entangling layers: Rot(weights) on every wire and a CNOT ring.

    The ring of layer l joins wires l mod (n - 1) + 1 apart (Schuld et al., Phys. Rev. A 101, 032308
    (2020)); PennyLane's StronglyEntanglingLayers. Weights are ordered by layer, wire, then angle.
    """
    gates = [Gate("RX", (w,), (Column("input", w),)) for w in range(qubits)]
    for layer in range(layers):
        for w in range(qubits):
            first = 3 * (layer * qubits + w)
            gates.append(Gate("Rot", (w,), tuple(Column("weight", first + a) for a in range(3))))
        if qubits > 1:
            distance = layer % (qubits - 1) + 1
            gates += [Gate("CNOT", (w, (w + distance) % qubits)) for w in range(qubits)]
    return Circuit(qubits, tuple(gates))


def product_ansatz(qubits: int, layers: int) -> Circuit:
    """RY(input) on every wire, then `layers` of RZ(weight) and RY(weight) on every wire, which nothing entangles.

    Weights are ordered by layer, wire, then angle.
    """
    gates = [Gate("RY", (w,), (Column("input", w),)) for w in range(qubits)]
    for layer in range(layers):
        for w in range(qubits):
            first = 2 * (layer * qubits + w)
            gates += [Gate(name, (w,), (Column("weight", first + a),)) for a, name in enumerate(("RZ", "RY"))]
    return Circuit(qubits, tuple(gates))


def iqp_ansatz(qubits: int, layers: int) -> Circuit:
    """`layers` times Hadamard on every wire, RZ(input) on every wire and IsingZZ(input) on every pair of wires.

    The embedding of Havlicek et al., Nature 567, 209 (2019), and PennyLane's IQPEmbedding. Inputs are the n angles of the
    wires, and then those of the pairs (0, 1), (0, 2), ... (n - 2, n - 1): the products of two wires' angles; the same
    in each layer.
    """
    pairs = list(combinations(range(qubits), 2))
    layer = [Gate("Hadamard", (w,)) for w in range(qubits)]
    layer += [Gate("RZ", (w,), (Column("input", w),)) for w in range(qubits)]
    layer += [Gate("IsingZZ", pair, (Column("input", qubits + at),)) for at, pair in enumerate(pairs)]
    return Circuit(qubits, tuple(layers * layer))


def qlcu_ansatz(qubits: int, layers: int) -> Circuit:
    """The layer of the Quantum Hydra models, all of its 4n angles inputs.

    Per layer RY on all wires, IsingXX on the ring (i, i + 1 mod n), RY on all, IsingYY on the ring;
    inputs are used in this order. It needs 2 qubits at least.
    """
    columns = iter(range(4 * qubits * layers))
    gates = []
    for _ in range(layers):
        for pair in ("IsingXX", "IsingYY"):
            gates += [Gate("RY", (w,), (Column("input", next(columns)),)) for w in range(qubits)]
            gates += [
                Gate(pair, (w, (w + 1) % qubits), (Column("input", next(columns)),)) for w in range(qubits)
            ]
    return Circuit(qubits, tuple(gates))


# Ansaetze with an input for each wire and weights, by the names of configs.
BY_NAME: Mapping[str, Callable[[int, int], Circuit]] = {
    "ring": vqc_ansatz,
    "strongly-entangling": strongly_entangling_ansatz,
    "product": product_ansatz,
}
