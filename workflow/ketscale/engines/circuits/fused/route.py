"""Chooses how a circuit is evaluated: by sweeping its gates over the states, or with its tail as one matrix.

The tail is every gate after the last one with an input; it is the same for all samples. As a matrix its length no
longer matters, but the product costs 2**n multiply-adds for each amplitude. The cost model is for one thread, with
constants fitted to 70 circuits of 4 to 10 qubits and 32 to 2,048 samples on an Intel Xeon (AVX-512). Both ways scale alike
with threads, and near the break-even a wrong choice costs little.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.program import reduce
from ketscale.engines.circuits.fused.schedule import schedule

# Seconds for one complex amplitude, forward and backward: for a rotation in a sweep, half of it if amplitudes are real; for a
# multiply-add with the matrix, which is 24 real operations; and for passing states from one kernel to the next, which the
# matrix's route adds.
STEP_S = 0.25e-9
PRODUCT_S = 0.17e-9
PASSING_S = 16e-9
# The matrix's route has three more calls.
CALLS_S = 0.15e-3


@lru_cache(maxsize=256)
def split(circuit: Circuit) -> tuple[Circuit, Circuit]:
    """The circuit up to its last gate with an input, and its tail."""
    inputs = (any(column.kind == "input" for column in gate.columns) for gate in circuit.gates)
    last = max((i for i, has_input in enumerate(inputs) if has_input), default=-1)
    return (
        Circuit(circuit.qubits, circuit.gates[: last + 1]),
        Circuit(circuit.qubits, circuit.gates[last + 1 :]),
    )


class RouteChoice(NamedTuple):
    """'sweep' or 'matrix', and the modelled costs of both in seconds."""

    route: str
    sweep_s: float
    matrix_s: float


@lru_cache(maxsize=4096)
def choose(circuit: Circuit, batch: int) -> RouteChoice:
    """The route that the cost model finds cheaper for a batch of this size, from |0...0>."""
    size, steps = 2**circuit.qubits, tail_steps(circuit)
    sweep_s = batch * size * steps * (STEP_S / 2 if reduce(circuit, None).real else STEP_S)
    product_s = batch * size * (size * PRODUCT_S + PASSING_S)
    matrix_s = CALLS_S + size * size * steps * STEP_S + product_s
    return RouteChoice("matrix" if matrix_s < sweep_s else "sweep", sweep_s, matrix_s)


@lru_cache(maxsize=256)
def tail_steps(circuit: Circuit) -> int:
    """The number of rotations and tables of phases in a sweep of the tail."""
    passes = schedule(reduce(split(circuit)[1], None), 3, 0, from_zero=False).passes
    return sum(len(pass_.steps) for pass_ in passes)
