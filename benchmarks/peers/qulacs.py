"""qulacs: its own circuits with parameters and its own gradient, `backprop`, sample by sample, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.circuits import Call, Loss
from benchmarks.peers.gates import ROT, SHORT, Gradients
from ketscale.engines.circuits.circuit import Column, Gate
from ketscale.optional import needed_for

PAULIS = {"X": 1, "Y": 2, "Z": 3}
# Rotations on several wires as exponentials exp(-i h P angle), up to a phase: h of each word P on the gate's wires.
WORDS = {
    **{f"R{name}": {name: 0.5} for name in PAULIS},
    **{f"CR{name}": {f"I{name}": 0.25, f"Z{name}": -0.25} for name in PAULIS},
    **{f"Ising{name * 2}": {name * 2: 0.5} for name in PAULIS},
    "PhaseShift": {"Z": 0.5},
    "ControlledPhaseShift": {"IZ": 0.25, "ZI": 0.25, "ZZ": -0.25},
}


class Qulacs:
    """Each sample's own observable, the words times its coefficients, is evaluated once and differentiated once.

    Raises:
        UserError: qulacs is not installed.
    """

    uncapturable: str | None = "qulacs computes on the host"

    def __init__(self, name: str, device: torch.device) -> None:
        with needed_for(f"simulator {name}"):
            import qulacs
        self._qulacs: Any = qulacs

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        circuit = self._qulacs.ParametricQuantumCircuit(loss.circuit.qubits)
        columns, factors = list[Column](), list[float]()
        for gate in loss.circuit.gates:
            if gate.name in SHORT:
                getattr(circuit, f"add_{SHORT[gate.name]}_gate")(*gate.wires)
            for word, column, factor in _exponentials(gate):
                wires = [wire for wire, letter in zip(gate.wires, word, strict=True) if letter != "I"]
                letters = word.replace("I", "")
                if len(letters) == 1:
                    getattr(circuit, f"add_parametric_R{letters}_gate")(wires[0], 0.0)
                else:
                    ids = [PAULIS[letter] for letter in letters]
                    circuit.add_parametric_multi_Pauli_rotation_gate(wires, ids, 0.0)
                columns.append(column)
                # Its rotations are exp(+i angle P / 2).
                factors.append(-2 * factor)
        observables = [self._observable(loss, row) for row in loss.coefficients]
        gradients, state = Gradients(loss, columns, factors), self._qulacs.QuantumState(loss.circuit.qubits)

        def run(row: list[float]) -> None:
            for number, angle in enumerate(row):
                circuit.set_parameter(number, angle)
            state.set_zero_state()
            circuit.update_quantum_state(state)

        def call() -> tuple[Any, ...]:
            total, derivatives = 0.0, []
            for row, observable in zip(gradients.angles(loss), observables, strict=True):
                run(row)
                total += observable.get_expectation_value(state)
                derivatives.append(circuit.backprop(observable))
            return total, *gradients.of(np.array(derivatives))

        masks = np.array([sum(1 << wire for wire, x in enumerate(word) if x == "Z") for word in loss.words])

        def drawn() -> tuple[Any, ...]:
            """Words of Z alone."""
            total = 0.0
            for row, coefficients in zip(gradients.angles(loss), loss.coefficients, strict=True):
                run(row)
                odd = np.bitwise_count(np.array(state.sampling(loss.shots))[:, None] & masks) % 2
                total += coefficients @ (1 - 2 * odd.mean(0))
            return (total,)

        return drawn if loss.shots else call

    def _observable(self, loss: Loss, coefficients: NDArray[Any]) -> Any:
        observable = self._qulacs.Observable(loss.circuit.qubits)
        for word, coefficient in zip(loss.words, coefficients.tolist(), strict=True):
            letters = (f"{letter} {wire}" for wire, letter in enumerate(word) if letter != "I")
            observable.add_operator(coefficient, " ".join(letters))
        return observable


def _exponentials(gate: Gate) -> list[tuple[str, Column, float]]:
    """The words on the gate's wires that it is exponentials of, in order, each with its column and h."""
    named = (
        zip(ROT, gate.columns, strict=True) if gate.name == "Rot" else ((gate.name, c) for c in gate.columns)
    )
    return [(word, column, h) for name, column in named for word, h in WORDS[name].items()]
