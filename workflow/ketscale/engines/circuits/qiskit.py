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

from ketscale.engines.circuits.checks import check_request, no_rows, refuse_gradient, refuse_transforms
from ketscale.engines.circuits.circuit import Angles, Circuit, Gate, given_matrix
from ketscale.engines.circuits.shifts import Shifted, Term, differentiated_terms, gathered, separated
from ketscale.errors import UserError
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
    """Qiskit's exact estimator primitive, always on the CPU and in double precision, from |0...0>.

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

        _check(circuit, angles, initial)
        refuse_gradient("qiskit", "a state", *angles)
        dtype = angles.inputs.dtype.to_complex()
        if angles.inputs.shape[0] == 0:
            return no_rows(angles, None, 2**circuit.qubits, dtype)
        translated, values = _translated(circuit), gathered(circuit, angles).double().numpy()
        rows = [Statevector(translated.assign_parameters(row)).data for row in values]
        return torch.as_tensor(np.stack(rows)).to(dtype)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        _check(circuit, angles, initial, paulis)
        if angles.inputs.shape[0] == 0:
            return no_rows(angles, None, len(paulis), angles.inputs.dtype)
        terms = differentiated_terms(circuit, angles)
        experiment = _Experiment(self._estimator, _translated(circuit), tuple(paulis), terms)
        at = gathered(circuit, angles)
        values: torch.Tensor = Shifted.apply(
            at, experiment.expvals(at.detach()), experiment.gradient, "simulator 'qiskit'"
        )
        return values


def _check(
    circuit: Circuit, angles: Angles, initial: torch.Tensor | None, paulis: Sequence[str] | None = None
) -> None:
    if initial is not None:
        raise UserError("simulator qiskit starts from |0...0>: use default.qubit")
    check_request(circuit, angles, None, paulis)
    refuse_transforms("qiskit", *angles)


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
            base = QuantumCircuit(len(qubits) - controls)
            getattr(base, METHODS[gate.base])(*angles, *base.qubits)
            operation = base.data[0].operation
            translated.append(operation.control(controls, annotated=False) if controls else operation, qubits)
    return translated


def _parts(gate: Gate) -> tuple[Gate, ...]:
    """A gate as gates with at most one angle: Rot(a, b, c) is RZ(a), RY(b), RZ(c) in this order."""
    if gate.base != "Rot":
        return (gate,)
    names = (gate.name.replace("Rot", name) for name in ("RZ", "RY", "RZ"))
    return tuple(Gate(name, gate.wires, (c,)) for name, c in zip(names, gate.columns, strict=True))


@dataclass(frozen=True)
class _Experiment:
    """A measurement on a batch: its Pauli words, and the shifts for the gradient.

    terms: see `wanted_terms`.
    """

    estimator: Any
    circuit: Any
    paulis: tuple[str, ...]
    terms: list[Term]

    def expvals(self, angles: torch.Tensor) -> torch.Tensor:
        """Expectation values (batch, paulis) at angles (batch, parameters)."""
        values = angles.double().numpy()[:, None]
        return torch.as_tensor(self._estimate(values, [list(self.paulis)])).to(angles.dtype)

    def gradient(self, angles: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
        """Gradient (batch, parameters) of sum(cotangent * expvals).

        The cotangents of a sample combine its Pauli words into one observable, so each shifted circuit is run only
        once, whatever the number of words. Qiskit drops terms below 1e-8 and rejects an observable without any, as on
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
            scales = [2.0 ** (27 - math.frexp(largest[row])[1]) for row in rows]
            observables = [
                [{word: weight * scale for word, weight in weighted[row].items()}]
                for row, scale in zip(rows, scales, strict=True)
            ]
            scaled = self._estimate(values[rows, None] + shifts, observables) @ coefficients
            gradient[rows] = scaled / np.array(scales)[:, None]
        return torch.as_tensor(gradient).to(angles.dtype)

    def _estimate(self, values: NDArray[np.float64], observables: list[list[Any]]) -> NDArray[np.float64]:
        """Run (batch, variants, parameters) values against (batch or 1, variants or 1) observables."""
        (result,) = self.estimator.run([(self.circuit, observables, values)]).result()
        evs: NDArray[np.float64] = result.data.evs
        return evs


def _weighted(paulis: tuple[str, ...], weights: NDArray[np.float64]) -> dict[str, float]:
    """The observable sum(weight * word); the weights of a repeated word are added."""
    observable = dict.fromkeys(paulis, 0.0)
    for word, weight in zip(paulis, weights, strict=True):
        observable[word] += float(weight)
    return observable
