"""A tape read into its structure and its numbers, for records of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pennylane as qml
import torch
from pennylane.tape import QuantumScript
from pennylane.transforms import defer_measurements

from ketscale.errors import UserError
from ketscale.interop import tape as tapes
from ketscale.interop.decompositions import DEVICE, decompose_once
from ketscale.interop.replay import Structure

# What torch says where the value of a tensor is needed that it only watches.
LOOKED = "tracing tensor"


def read_tape(tape: QuantumScript, wires: Any, spec: Any) -> tuple[Structure, list[torch.Tensor]]:
    """A tape's structure, and its numbers: of inputs, weights and phases, the factors of Pauli words, a prepared state.

    wires: of the device. spec: how the results are nested.

    Raises:
        UserError: it has something that only the device runs.
    """
    tape = standard(tape, wires, matrices=False)
    qubits = tape.num_wires
    start = tapes.preparation(tape)
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


def standard(tape: QuantumScript, wires: Any, matrices: bool = True) -> QuantumScript:
    """The tape of operations that `fused` takes, on wires 0..n-1, and of `matrices` as `decompose_once` leaves them.

    Raises:
        UserError: it has something that only the device runs.
    """
    if any(isinstance(op, qml.ops.MidMeasure | qml.ops.Conditional) for op in tape.operations):
        (tape,), _ = defer_measurements(tape, allow_postselect=False)
    (tape,), _ = tapes.on_wires(tape, wires, name="from_qnode")
    try:
        (tape,), _ = decompose_once(tape, wires, matrices)
    except UserError:
        raise
    except Exception as error:
        # PennyLane has no type for a decomposition that takes no batch: it raises whatever the arithmetic does.
        if tape.batch_size is None or LOOKED in str(error):
            raise
        raise UserError(
            f"from_qnode: PennyLane cannot decompose a batch of these operations ({type(error).__name__}): {DEVICE}"
        ) from error
    return tape.map_to_standard_wires()
