"""Which way a circuit is evaluated: by sweeping its gates over the states, or its tail as one matrix.

The tail is every gate behind the last one with an input; it is the same for all samples. As a matrix its
length no longer matters, but every amplitude is multiplied with every other one. The costs are a model of
one thread, its constants fitted to the times in docs/measurements.md ("Routes"); both ways scale alike
with threads, and near the break-even a wrong choice costs little.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ketscale.engines.circuits.circuit import Circuit, Gate
from ketscale.engines.circuits.fused.program import reduce
from ketscale.engines.circuits.fused.schedule import schedule

# Seconds for one amplitude, forward and back: of a rotation in a sweep; of a multiply-add with a row of the
# matrix, which is 24 real operations; and of what the matrix's way adds, states that leave a kernel and enter the next.
STEP_S = 0.5e-9
PRODUCT_S = 0.2e-9
PASSING_S = 50e-9
# The matrix's way has three calls more.
CALLS_S = 0.5e-3


@lru_cache(maxsize=256)
def split(circuit: Circuit) -> tuple[Circuit, Circuit]:
    """The circuit up to its last gate with an input, and its tail."""
    last = max((i for i, gate in enumerate(circuit.gates) if _has_input(gate)), default=-1)
    return (
        Circuit(circuit.qubits, circuit.gates[: last + 1]),
        Circuit(circuit.qubits, circuit.gates[last + 1 :]),
    )


class Choice(NamedTuple):
    """'sweep' or 'matrix', and the modelled seconds of the two."""

    route: str
    sweep_s: float
    matrix_s: float


@lru_cache(maxsize=4096)
def choose(circuit: Circuit, batch: int) -> Choice:
    """The route that the model finds cheaper for a batch."""
    size, steps = 2**circuit.qubits, tail_steps(circuit)
    sweep_s = batch * size * steps * STEP_S
    product_s = batch * size * (size * PRODUCT_S + PASSING_S)
    matrix_s = CALLS_S + size * size * steps * STEP_S + product_s
    return Choice("matrix" if matrix_s < sweep_s else "sweep", sweep_s, matrix_s)


@lru_cache(maxsize=256)
def tail_steps(circuit: Circuit) -> int:
    """Rotations and tables of phases of the tail, as a sweep takes them."""
    passes = schedule(reduce(split(circuit)[1], None), 3, 0, from_zero=False).passes
    return sum(len(pass_.steps) for pass_ in passes)


def _has_input(gate: Gate) -> bool:
    return any(column.kind == "input" for column in gate.columns)
