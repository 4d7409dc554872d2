"""The superposition transformer as the published Qiskit circuit, taken literally: the baseline of the closed form.

Control qubits in uniform superposition select a transition. For each transition psi is prepared on four qubits; V and
W act on two qubits each; the inverse preparations of the next and the current word follow, on two qubits each; last
come Hadamards on the controls. P is the probability that every qubit is 0. A preparation is a unitary completed from
its first column by Gram-Schmidt, with random other columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.optional import needed_for
from ketscale.problems.sentences.likelihood import Shifted, Shifts
from ketscale.problems.sentences.transformer import Transitions, sentence_circuit

COUNTS = (2, 4, 8, 16)
COMPLETION_SEED = 0
WORD = 4

Vector = NDArray[np.float64]
Matrix = NDArray[np.complex128]


class LiteralCircuit(Shifted):
    """P by Qiskit's state vector, a circuit for each sentence, differentiated by parameter-shift.

    rebuild: build the circuit and synthesise its controlled unitaries again in every evaluation, as published; if
        False, once for each sentence, with angles that are bound later.

    Raises:
        UserError: a sentence has a number of transitions other than 2, 4, 8 or 16, or Qiskit is not installed.
    """

    def __init__(self, layers: int, transitions: Transitions, rebuild: bool = True) -> None:
        super().__init__(layers)
        for sentence, count in enumerate(transitions.counts.tolist(), 1):
            if count not in COUNTS:
                raise UserError(
                    f"the literal circuit selects among 2, 4, 8 or 16 transitions, but sentence {sentence} has "
                    f"{count + 1} words and so {count}; take sentences of 3, 5, 9 or 17 words, or the closed form"
                )
        with needed_for("simulator literal"):
            import qiskit  # noqa: F401
        self.rebuild = rebuild
        self._transitions = transitions
        self._built: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A copy builds its circuits again.
        return {**self.__dict__, "_built": {}}

    def probabilities(self, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """P (sentences,), one circuit evaluation each."""
        angles = weights.detach().double().cpu().numpy()
        return weights.new_tensor([self.probability(s, angles) for s in sentences.tolist()])

    def shifted(self, weights: torch.Tensor, sentences: torch.Tensor, shifts: Shifts) -> torch.Tensor:
        """See `Shifted.shifted`; one circuit evaluation for each task."""
        angles = weights.detach().double().cpu().numpy()
        values = []
        numbers = sentences[shifts.row].tolist()
        for k, sign, sentence in zip(shifts.angle.tolist(), shifts.sign.tolist(), numbers, strict=True):
            shifted = angles.copy()
            shifted[k] += sign * math.pi / 2
            values.append(self.probability(sentence, shifted))
        return weights.new_tensor(values)

    def probability(self, sentence: int, angles: Vector) -> float:
        """P of the sentence with this index at these angles in radians, (48 * layers,)."""
        from qiskit.quantum_info import Statevector

        if self.rebuild:
            circuit = self.circuit(sentence, angles)
        else:
            built = self._built.get(sentence)
            if built is None:
                from qiskit.circuit import ParameterVector

                built = self._built[sentence] = self.circuit(sentence, ParameterVector("w", len(angles)))
            circuit = built.assign_parameters(angles)
        return float(abs(Statevector(circuit).data[0]) ** 2)

    def circuit(self, sentence: int, angles: Any) -> Any:
        """The circuit of a sentence; `angles` are numbers or Qiskit's parameters."""
        from qiskit import QuantumCircuit

        psi, target = (part.numpy() for part in self._transitions.of_sentence(sentence))
        rng = np.random.default_rng(COMPLETION_SEED)
        controls = len(psi).bit_length() - 1
        selected, data = list(range(controls)), list(range(controls, controls + 4))
        circuit = QuantumCircuit(controls + 4)
        circuit.h(selected)
        for i, state in enumerate(psi):
            _append_selected(circuit, completed(state, rng), i, selected, data)
        for gate in sentence_circuit(self.layers).gates:
            # Wire 0 is the most significant bit, Qiskit's qubit 0 the least.
            qubits = [data[3 - wire] for wire in gate.wires]
            if gate.name == "CNOT":
                circuit.cx(*qubits)
            else:
                getattr(circuit, gate.name.lower())(angles[gate.columns[0].index], *qubits)
        for i, pair in enumerate(target):
            # z (x) x has rank one: its factors are the first singular vectors.
            left, _, right = np.linalg.svd(pair.reshape(WORD, WORD))
            for word, qubits in ((right[0], data[:2]), (left[:, 0], data[2:])):
                _append_selected(circuit, completed(word, rng).conj().T, i, selected, qubits)
        circuit.h(selected)
        return circuit


def completed(vector: Vector, rng: np.random.Generator) -> Matrix:
    """A unitary whose first column is the unit `vector`, the others random (Gram-Schmidt)."""
    columns = rng.standard_normal((len(vector), len(vector)))
    columns[:, 0] = vector
    q, r = np.linalg.qr(columns)
    q[:, 0] *= np.sign(r[0, 0])
    return q.astype(complex)


def _append_selected(
    circuit: Any, unitary: Matrix, number: int, selected: list[int], data: list[int]
) -> None:
    from qiskit.circuit.library import UnitaryGate

    circuit.append(UnitaryGate(unitary).control(len(selected), ctrl_state=number), [*selected, *data])
