"""The case of a cell: the loss that every simulator evaluates and differentiates, with its fixed random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ketscale.bench.selection import Cell
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Circuit, pauli_words

SEED = 20240229

BUILDERS: dict[str, tuple[Callable[[int, int], Circuit], str]] = {
    "strongly_entangling": (strongly_entangling_ansatz, "Z"),
    "vqc": (vqc_ansatz, "Z"),
    "qlcu": (qlcu_ansatz, "XYZ"),
}


@dataclass(frozen=True)
class Case:
    """loss = sum over samples and words of coefficients * expectation values, and its gradients.

    inputs: (batch, columns), weights: (columns,), coefficients: (batch, words); radians, all of `real`.
    The circuit has no constant angles, which the outside simulators are not written for.
    """

    circuit: Circuit
    words: tuple[str, ...]
    inputs: NDArray[Any]
    weights: NDArray[Any]
    coefficients: NDArray[Any]

    def __post_init__(self) -> None:
        if any(column.kind == "constant" for gate in self.circuit.gates for column in gate.columns):
            raise ValueError("a case's angles are inputs and weights, not constants")

    @property
    def real(self) -> np.dtype[Any]:
        """The precision, float32 or float64."""
        return self.inputs.dtype


# Evaluates the loss (a scalar) and its gradients by inputs and weights, in arrays of the simulator's own kind;
# of inputs or weights that the circuit does not have, the gradient may be left out.
Call = Callable[[], tuple[Any, ...]]


class Subject(Protocol):
    """A simulator under test.

    uncapturable: why its calls cannot be captured in a CUDA graph; None if they can.
    """

    uncapturable: str | None

    def prepare(self, case: Case) -> Call:
        """The call to time. It starts from arrays of the simulator's own kind and ends when all numbers are there."""
        ...


def case_of(cell: Cell, dtype: type[np.floating[Any]]) -> Case:
    """The case of a cell; the same numbers, rounded, in either precision, and fewer rows for a smaller batch."""
    build, letters = BUILDERS[cell.ansatz]
    circuit = build(cell.qubits, cell.layers)
    words = pauli_words(cell.qubits, letters)
    weights, inputs, coefficients = (np.random.default_rng((SEED, stream)) for stream in range(3))
    return Case(
        circuit,
        words,
        inputs.uniform(-np.pi, np.pi, (cell.batch, circuit.inputs)).astype(dtype),
        weights.uniform(-np.pi, np.pi, circuit.weights).astype(dtype),
        coefficients.standard_normal((cell.batch, len(words))).astype(dtype),
    )
