"""A tape read into its structure and its numbers, for records of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pennylane as qml
import torch
from pennylane.devices.preprocess import validate_device_wires
from pennylane.measurements import StateMeasurement, StateMP
from pennylane.tape import QuantumScript
from pennylane.transforms import defer_measurements

from ketscale.errors import UserError
from ketscale.interop import tape as tapes
from ketscale.interop.decompositions import decomposed
from ketscale.interop.replay import Structure


def read_qnode(tape: QuantumScript, device: Any, spec: Any) -> tuple[Structure, list[torch.Tensor]]:
    """A quantum function's tape: its structure and its numbers, in the order of `Evaluator`, as tensors.

    device: of the QNode. spec: how the results are nested.

    Raises:
        UserError: it has something that only the device runs.
    """
    for measured in tape.measurements:
        if not isinstance(measured, StateMeasurement):
            raise UserError(
                f"from_qnode computes exact results, and {type(measured).__name__} needs shots: "
                "call the QNode with device ketscale.fused and shots"
            )
    mixed = device.name == "default.mixed" and any(type(m) is StateMP for m in tape.measurements)
    structure, tensors = read_tape(standard(tape, device.wires, mixed), spec, checked=True, mixed=mixed)
    values = [value for m in structure.measurements if m.obs is not None for value in m.obs.data]
    if structure.words is None and any(isinstance(value, torch.Tensor) for value in values):
        raise UserError(
            "from_qnode: tensors in observables can only be coefficients of Pauli words in expectation values: "
            "call the QNode on default.qubit"
        )
    return structure, tensors


def read_tape(
    tape: QuantumScript, spec: Any, checked: bool = False, mixed: bool = False
) -> tuple[Structure, list[torch.Tensor]]:
    """The structure and the numbers of a tape on wires 0..n-1. checked, mixed: see `Structure`.

    Raises:
        UserError: a number is complex that is not to be.
    """
    qubits = tape.num_wires
    start = tapes.preparation(tape)
    gates, numbers = tapes.read(tape.operations[start is not None :], tape.batch_size is not None)
    readout = tapes.expectations(tape.measurements, qubits)
    structure = Structure(
        qubits, gates, len(numbers.inputs), len(numbers.weights), len(numbers.phases), len(numbers.matrices), start is not None,
        checked, mixed, tape.batch_size, None if readout is None else readout.words, () if readout is None else readout.places, spec,
        tape.measurements,
    )  # fmt: skip
    real = [*numbers.inputs, *numbers.weights, *numbers.phases]
    if readout is not None:
        real += [factor for row in readout.coefficients for factor in row]
    values = [*real, *numbers.matrices]
    if start is not None:
        values.append(start.state_vector(wire_order=range(qubits)).reshape(-1, 2**qubits))
    # Never by way of torch's default precision, which would round.
    tensors = [v if isinstance(v, torch.Tensor) else torch.as_tensor(np.asarray(v)) for v in values]
    if any(tensor.is_complex() for tensor in tensors[: len(real)]):
        raise UserError(tapes.COMPLEX)
    return structure, tensors


def standard(tape: QuantumScript, wires: Any, mixed: bool = False) -> QuantumScript:
    """The tape of operations that `fused` takes, or that rest on a matrix, on wires 0..n-1. mixed: see `decomposed`.

    Raises:
        UserError: it has something that only the device runs.
    """
    if any(isinstance(op, qml.ops.MidMeasure | qml.ops.Conditional) for op in tape.operations):
        if any(getattr(op, "postselect", None) is not None for op in tape.operations):
            raise UserError("from_qnode has no postselection: call the QNode on default.qubit")
        (tape,), _ = defer_measurements(tape, allow_postselect=False)
    (tape,), _ = validate_device_wires(tape, wires, name="from_qnode")
    (tape,), _ = decomposed(tape, wires, mixed)
    return tape.map_to_standard_wires()
