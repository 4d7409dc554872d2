"""Circuits on Qiskit's StatevectorEstimator, differentiated by parameter-shift rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.checks import check_request, no_rows, refuse_gradient
from ketscale.engines.circuits.circuit import Angles, Circuit, Gate, given_matrix
from ketscale.engines.circuits.shifts import Shifted, Term, gathered, separated, wanted_terms
from ketscale.optional import needed_for

# What cannot be scaled up to 2^27 without overflow counts as 0.
_NO_WEIGHT = 1e-280

# The method of qiskit.QuantumCircuit for each gate; Rot is missing, as it becomes several gates.
METHODS = {
    "Hadamard": "h", "PauliX": "x", "PauliY": "y", "PauliZ": "z", "S": "s", "T": "t",
    "RX": "rx", "RY": "ry", "RZ": "rz", "PhaseShift": "p", "CNOT": "cx", "CZ": "cz", "SWAP": "swap",
    "CRX": "crx", "CRY": "cry", "CRZ": "crz", "ControlledPhaseShift": "cp", "IsingXX": "rxx", "IsingYY": "ryy", "IsingZZ": "rzz",
}  # fmt: skip


class Qiskit:
    """Qiskit's exact estimator primitive, always on the CPU and in double precision.

    Raises:
        UserError: Qiskit is not installed.
    """

    def __init__(self) -> None:
        with needed_for("simulator qiskit"):
            from qiskit.primitives import StatevectorEstimator
        self._estimator: Any = StatevectorEstimator()

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        from qiskit.quantum_info import Statevector

        check_request(circuit, angles, initial)
        refuse_gradient("qiskit", "a state", *angles, initial)
        dtype = angles.inputs.dtype.to_complex()
        if angles.inputs.shape[0] == 0:
            return no_rows(angles, initial, 2**circuit.qubits, dtype)
        translated, starts = _translated(circuit), _starts(initial)
        values = gathered(circuit, angles).double().numpy()
        rows = [
            Statevector(_prepared(translated, start).assign_parameters(row)).data
            for start, row in zip(starts * (len(values) // len(starts)), values, strict=True)
        ]
        return torch.as_tensor(np.stack(rows)).to(dtype)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        check_request(circuit, angles, initial, paulis)
        refuse_gradient("qiskit", "an initial state", initial)
        if angles.inputs.shape[0] == 0:
            return no_rows(angles, initial, len(paulis), angles.inputs.dtype)
        terms = wanted_terms(circuit, angles)
        experiment = _Experiment(
            self._estimator, _translated(circuit), tuple(paulis), _starts(initial), terms
        )
        at = gathered(circuit, angles)
        values: torch.Tensor = Shifted.apply(
            at, experiment.expvals(at.detach()), experiment.gradient, "simulator 'qiskit'"
        )
        return values


@lru_cache(maxsize=256)
def _translated(circuit: Circuit) -> Any:
    """Qiskit's circuit, in which every use of an input or a weight is a parameter of its own, as in `separated`.

    Wire 0 becomes Qiskit's last, most significant qubit.
    """
    from qiskit import QuantumCircuit
    from qiskit.circuit import ParameterVector

    gates = [part for gate in circuit.gates for part in _parts(gate)]
    parameters = iter(ParameterVector("angle", len(separated(circuit)[1])))
    translated = QuantumCircuit(circuit.qubits)
    for gate in gates:
        qubits = [circuit.qubits - 1 - wire for wire in gate.wires]
        matrix, controls = given_matrix(gate), len(gate.controls)
        if matrix is not None:
            # For Qiskit the first qubit of a matrix is the least significant one.
            translated.unitary(matrix, qubits[::-1])
        else:
            angles = (c.value if c.kind == "constant" else next(parameters) for c in gate.columns)
            alone = QuantumCircuit(len(qubits) - controls)
            getattr(alone, METHODS[gate.base])(*angles, *alone.qubits)
            operation = alone.data[0].operation
            translated.append(operation.control(controls, annotated=False) if controls else operation, qubits)
    return translated


def _parts(gate: Gate) -> tuple[Gate, ...]:
    """A gate as gates with at most one angle: Rot(a, b, c) is RZ(a), RY(b), RZ(c) in this order."""
    if gate.base != "Rot":
        return (gate,)
    names = (gate.name.replace("Rot", name) for name in ("RZ", "RY", "RZ"))
    return tuple(Gate(name, gate.wires, (c,)) for name, c in zip(names, gate.columns, strict=True))


def _starts(initial: torch.Tensor | None) -> list[NDArray[np.complex128] | None]:
    """The initial states: one for the whole batch (None means |0...0>), or one per sample."""
    if initial is None:
        return [None]
    return list(initial.detach().reshape(-1, initial.shape[-1]).to(torch.complex128).numpy())


def _prepared(circuit: Any, start: NDArray[np.complex128] | None) -> Any:
    """The circuit after a preparation of `start`."""
    if start is None:
        return circuit
    prepared = circuit.copy_empty_like()
    prepared.prepare_state(start, normalize=True)
    return prepared.compose(circuit)


@dataclass(frozen=True)
class _Experiment:
    """A measurement on a batch: its Pauli words, initial states, and the shifts for the gradient.

    terms: see `wanted_terms`.
    """

    estimator: Any
    circuit: Any
    paulis: tuple[str, ...]
    starts: list[NDArray[np.complex128] | None]
    terms: list[Term]

    def expvals(self, angles: torch.Tensor) -> torch.Tensor:
        """Expectation values (batch, paulis) at angles (batch, parameters)."""
        values = angles.double().numpy()[:, None]
        return torch.as_tensor(self._estimate(values, [list(self.paulis)], self.starts)).to(angles.dtype)

    def gradient(self, angles: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
        """Gradient (batch, parameters) of sum(cotangent * expvals).

        The cotangents of a sample combine its Pauli words into one observable, so each shifted circuit is run only
        once, whatever the number of words. Qiskit drops terms below 1e-8 and refuses an observable without any, as on
        a rank without samples. So the largest term is scaled to 2^27, about 1e8, and a gradient without terms is 0.
        """
        values = angles.double().numpy()
        shifts = np.zeros((len(self.terms), values.shape[1]))
        coefficients = np.zeros_like(shifts)
        for term, (parameter, coefficient, shift) in enumerate(self.terms):
            shifts[term, parameter] = shift
            coefficients[term, parameter] = coefficient
        weighted = [_weighted(self.paulis, row) for row in cotangent.double().numpy()]
        largest = [np.abs(list(words.values())).max() for words in weighted]
        rows = [row for row, weight in enumerate(largest) if not weight <= _NO_WEIGHT]
        gradient = np.zeros_like(values)
        if rows:
            starts = self.starts if len(self.starts) == 1 else [self.starts[row] for row in rows]
            scales = [2.0 ** (27 - math.frexp(largest[row])[1]) for row in rows]
            observables = [
                [{word: weight * scale for word, weight in weighted[row].items()}]
                for row, scale in zip(rows, scales, strict=True)
            ]
            scaled = self._estimate(values[rows, None] + shifts, observables, starts) @ coefficients
            gradient[rows] = scaled / np.array(scales)[:, None]
        return torch.as_tensor(gradient).to(angles.dtype)

    def _estimate(
        self,
        values: NDArray[np.float64],
        observables: list[list[Any]],
        starts: list[NDArray[np.complex128] | None],
    ) -> NDArray[np.float64]:
        """Run (batch, variants, parameters) values against (batch or 1, variants or 1) observables."""
        if len(starts) == 1:
            blocks = [(_prepared(self.circuit, starts[0]), observables, values)]
        else:
            each = observables if len(observables) > 1 else observables * len(values)
            blocks = [
                (_prepared(self.circuit, start), [words], row[None])
                for start, words, row in zip(starts, each, values, strict=True)
            ]
        results = self.estimator.run(blocks).result()
        return np.concatenate([result.data.evs for result in results])


def _weighted(paulis: tuple[str, ...], weights: NDArray[np.float64]) -> dict[str, float]:
    """The observable sum(weight * word); the weights of a repeated word are added."""
    observable = dict.fromkeys(paulis, 0.0)
    for word, weight in zip(paulis, weights, strict=True):
        observable[word] += float(weight)
    return observable
