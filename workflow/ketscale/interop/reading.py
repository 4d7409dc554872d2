"""A tape read into its structure and its numbers, for records of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pennylane as qml
import torch
from pennylane.tape import QuantumScript

from ketscale.errors import UserError
from ketscale.interop import tape as tapes
from ketscale.interop.decompositions import decompose_once
from ketscale.interop.replay import Structure

# What torch says where the value of a tensor is needed that it only watches.
LOOKED = "tracing tensor"

# What to do where only the device knows the way.
DEVICE = "call the QNode with device ketscale.fused"


def read_tape(tape: QuantumScript, wires: Any, spec: Any) -> tuple[Structure, list[torch.Tensor]]:
    """A tape's structure, and its numbers: of inputs, weights and phases, the factors of Pauli words, a prepared state.

    wires: of the device. spec: how the results are nested.

    Raises:
        UserError: it has something that only the device runs.
    """
    tape = standard(tape, wires)
    qubits = tape.num_wires
    start = tapes.preparation(tape)
    for operation in tape.operations[start is not None :]:
        if not tapes.native(operation):
            raise UserError(f"from_qnode: {operation.name} rests on a matrix that tensors decide: {DEVICE}")
    gates, numbers = tapes.read(tape.operations[start is not None :])
    asked = tapes.expectations(tape.measurements, qubits)
    if asked is None and any(
        isinstance(value, torch.Tensor)
        for m in tape.measurements
        if m.obs is not None
        for value in m.obs.data
    ):
        raise UserError(
            f"from_qnode: tensors in observables can only be coefficients of Pauli words in expectation values: {DEVICE}"
        )
    structure = Structure(
        qubits, gates, len(numbers.inputs), len(numbers.weights), len(numbers.phases), start is not None, tape.batch_size,
        None if asked is None else asked.words, () if asked is None else asked.places, spec, tape.measurements,
    )  # fmt: skip
    values = [*numbers.inputs, *numbers.weights, *numbers.phases]
    if asked is not None:
        values += [factor for row in asked.coefficients for factor in row]
    tensors = [v if isinstance(v, torch.Tensor) else torch.as_tensor(np.asarray(v)) for v in values]
    if any(tensor.is_complex() for tensor in tensors):
        raise UserError(f"from_qnode: {tapes.COMPLEX}")
    if start is not None:
        tensors.append(torch.as_tensor(start.state_vector(wire_order=range(qubits)).reshape(-1, 2**qubits)))
    return structure, tensors


def standard(tape: QuantumScript, wires: Any) -> QuantumScript:
    """The tape of operations that `fused` takes, or that rest on a matrix, on wires 0..n-1.

    Raises:
        UserError: it has something that only the device runs.
    """
    if any(isinstance(op, qml.ops.MidMeasure | qml.ops.Conditional) for op in tape.operations):
        raise UserError(f"from_qnode has no mid-circuit measurements: {DEVICE}")
    (tape,), _ = tapes.on_wires(tape, wires, name="from_qnode")
    try:
        (tape,), _ = decompose_once(tape, wires)
    except Exception as error:
        # PennyLane has no type for a decomposition that takes no batch: it raises whatever the arithmetic does.
        if tape.batch_size is None or LOOKED in str(error):
            raise
        raise UserError(
            f"from_qnode: PennyLane cannot decompose a batch of these operations ({type(error).__name__}): {DEVICE}"
        ) from error
    return tape.map_to_standard_wires()
