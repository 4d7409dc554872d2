"""What a circuit costs when it is done literally, gate by gate: the common measure of all simulators.

Real operations per complex amplitude. A simulator that finds less to do has a higher rate by this
measure, as it should: it is the rate at which the answer appears, not at which hardware is kept busy.
"""

from __future__ import annotations

from collections.abc import Sequence

from ketscale.engines.circuits.circuit import UNITARY, Circuit, Gate

GATE_FLOPS: dict[str, int] = {
    "Rot": 14,
    **dict.fromkeys(("RX", "RY", "Hadamard", "RZ", "IsingXX", "IsingYY", "IsingZZ"), 6),
    **dict.fromkeys(("PhaseShift", "S", "T", "CRX", "CRY", "CRZ"), 3),  # they touch half of the amplitudes
    "ControlledPhaseShift": 2,  # a quarter of them: 1.5, rounded up
    **dict.fromkeys(("PauliX", "PauliY", "PauliZ", "CNOT", "CZ", "SWAP"), 0),  # permutations and signs
}
UNITARY_FLOPS = {1: 14, 2: 30}
ANGLE_FLOPS = 4
PROBABILITY_FLOPS = 3
Z_WORD_FLOPS = 1
WORD_FLOPS = 4


def literal_flops(circuit: Circuit, words: Sequence[str]) -> int:
    """Real operations of one sample: the expectation values of `words` and their gradient by the adjoint method.

    The adjoint method undoes every gate on two states, has an inner product for every angle, and applies
    the observables once more. Words of Z alone share the probabilities.
    """
    gates = sum(map(_gate_flops, circuit.gates))
    angles = sum(len(gate.columns) for gate in circuit.gates)
    diagonal = sum(set(word) <= {"I", "Z"} for word in words)
    observables = Z_WORD_FLOPS * diagonal + WORD_FLOPS * (len(words) - diagonal)
    observables += PROBABILITY_FLOPS if diagonal else 0
    return 2**circuit.qubits * (3 * gates + ANGLE_FLOPS * angles + 2 * observables)


def _gate_flops(gate: Gate) -> int:
    return UNITARY_FLOPS[len(gate.wires)] if gate.name == UNITARY else GATE_FLOPS[gate.name]
