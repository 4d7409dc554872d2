"""The superposition transformer as the literal Qiskit circuit: the baseline that the closed form is compared with.

Control qubits in uniform superposition select a transition: under each, its psi is prepared on four qubits, V
and W act on two each, the inverse preparations of next and current word follow; Hadamards on the controls, and
P is the probability that every qubit is 0. Preparations are unitaries completed from their first column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.models.transformer import TINY, Batch, whole_circuit

COUNTS = (2, 4, 8, 16)
COMPLETION_SEED = 0

Matrix = NDArray[np.complex128]


def completed(vector: NDArray[np.float64], rng: np.random.Generator) -> Matrix:
    """A unitary whose first column is the unit `vector`, the others random (Gram-Schmidt)."""
    columns = rng.standard_normal((len(vector), len(vector)))
    columns[:, 0] = vector
    q, r = np.linalg.qr(columns)
    q[:, 0] *= np.sign(r[0, 0])
    return q.astype(complex)


class LiteralTransformer:
    """P by Qiskit, one circuit for each sentence.

    rebuild: build and synthesise the circuit anew in every call, as published; else once, its angles bound later.
    """

    def __init__(self, batch: Batch, layers: int, rebuild: bool = True) -> None:
        for count in batch.counts.tolist():
            if count not in COUNTS:
                raise UserError(
                    f"the literal circuit selects among 2, 4, 8 or 16 transitions, not {count}: its sentences need "
                    "3, 5, 9 or 17 words; the closed form takes any"
                )
        self._layers, self._rebuild = layers, rebuild
        starts = [0, *batch.counts.cumsum(0).tolist()]
        psi, target = batch.psi.numpy(), batch.target.numpy()
        self._sentences = [
            (psi[a:b], target[a:b]) for a, b in zip(starts[:-1], starts[1:], strict=True)
        ]
        self._built: dict[int, Any] = {}

    def probability(self, sentence: int, weights: NDArray[np.float64]) -> float:
        """P of a sentence at these angles (48 layers,)."""
        from qiskit.quantum_info import Statevector

        if self._rebuild:
            circuit = self._circuit(sentence, weights)
        else:
            if sentence not in self._built:
                from qiskit.circuit import ParameterVector

                parameters = ParameterVector("w", len(weights))
                self._built[sentence] = self._circuit(sentence, parameters).decompose(reps=6)
            built = self._built[sentence]
            circuit = built.assign_parameters(dict(zip(_ordered(built), weights, strict=True)))
        return float(abs(Statevector(circuit).data[0]) ** 2)

    def _circuit(self, sentence: int, weights: Any) -> Any:
        from qiskit import QuantumCircuit
        from qiskit.circuit.library import UnitaryGate

        psi, target = self._sentences[sentence]
        rng = np.random.default_rng(COMPLETION_SEED)
        controls = len(psi).bit_length() - 1
        circuit = QuantumCircuit(controls + 4)
        selected, data = list(range(controls)), list(range(controls, controls + 4))
        circuit.h(selected)
        for i, state in enumerate(psi):
            gate = UnitaryGate(completed(state, rng)).control(controls, ctrl_state=i)
            circuit.append(gate, [*selected, *data])
        # Our wire w is Qiskit's data qubit 3 - w, so that W's wires hold the more significant bits there too.
        for gate in whole_circuit(self._layers).gates:
            wires = [data[3 - w] for w in gate.wires]
            if gate.name == "CNOT":
                circuit.cx(*wires)
            else:
                getattr(circuit, gate.name.lower())(weights[gate.columns[0].index], wires[0])
        for i, pair in enumerate(target):
            gate = UnitaryGate(completed(pair, rng).conj().T).control(controls, ctrl_state=i)
            circuit.append(gate, [*selected, *data])
        circuit.h(selected)
        return circuit

    def loss_and_gradient(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The summed loss of all sentences, and its gradient by parameter-shift on P."""
        loss, gradient = 0.0, np.zeros_like(weights)
        for s in range(len(self._sentences)):
            probability = self.probability(s, weights)
            loss -= np.log(probability + TINY)
            for k in range(len(weights)):
                plus, minus = (self.probability(s, _shifted(weights, k, sign)) for sign in (1, -1))
                gradient[k] -= (plus - minus) / (2 * (probability + TINY))
        return loss, gradient


def _shifted(weights: NDArray[np.float64], k: int, sign: int) -> NDArray[np.float64]:
    shifted = weights.copy()
    shifted[k] += sign * np.pi / 2
    return shifted


def _ordered(circuit: Any) -> list[Any]:
    return sorted(circuit.parameters, key=lambda parameter: parameter.index)


class LiteralLoss(torch.autograd.Function):
    """`LiteralTransformer.loss_and_gradient` in torch."""

    @staticmethod
    def forward(ctx: Any, weights: torch.Tensor, literal: LiteralTransformer) -> torch.Tensor:
        loss, gradient = literal.loss_and_gradient(weights.detach().double().numpy())
        ctx.save_for_backward(torch.from_numpy(gradient))
        return weights.new_tensor(loss)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return cotangent * gradient.to(cotangent.dtype), None
