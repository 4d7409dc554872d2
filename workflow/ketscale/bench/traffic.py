"""The least that `fused` moves through a GPU's memory for a loss and its gradients."""

from __future__ import annotations

from collections.abc import Sequence

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.program import Rotation, reduce


def least_bytes(circuit: Circuit, words: Sequence[str], batch: int, itemsize: int = 4) -> int:
    """Bytes of one call on a batch, if each kernel reads and writes its arrays once and shared ones stay in caches.

    For each sample: its inputs and their gradient; the cosine and sine of every rotation, the final state and the
    derivative by every rotation that has an angle, all written and read again; the values and their cotangents.
    """
    program = reduce(circuit, tuple(words))
    rotations = [step for step in program.rotations if isinstance(step, Rotation)]
    derivatives = sum(rotation.angle.kind != "constant" for rotation in rotations)
    state = 2**circuit.qubits * (1 if program.real else 2)
    numbers = circuit.inputs + 2 * len(rotations) + state + derivatives + len(words)
    return 2 * numbers * batch * itemsize
