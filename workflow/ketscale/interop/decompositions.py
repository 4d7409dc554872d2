"""PennyLane's operations decomposed into those that `fused` takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pennylane as qml
from pennylane.devices.preprocess import decompose
from pennylane.operation import Operator
from pennylane.tape import QuantumScript
from pennylane.transforms import broadcast_expand

from ketscale.interop.tape import NAME, accepted, rests_on_a_matrix


def _decomposition(operation: Operator) -> Sequence[Operator]:
    """An operation's own decomposition, but of controlled gates on one wire.

    PennyLane decomposes these by their matrices. That drops rotations by 0, which have derivatives, and takes neither
    every batch nor angles that JAX compiles.
    """
    if (
        isinstance(operation, qml.ops.Controlled)
        and len(operation.base.wires) == 1
        and operation.base.data
        and operation.base.has_decomposition
        and not rests_on_a_matrix(operation.base)
    ):
        controls, values = operation.control_wires, operation.control_values
        return [qml.ctrl(part, controls, control_values=values) for part in operation.base.decomposition()]
    return operation.decomposition()


def decompose_once(tape: QuantumScript, wires: Any) -> Any:
    """Into operations that `fused` takes, broadcast parameters as they are."""
    return decompose(
        tape, stopping_condition=accepted, decomposer=_decomposition, device_wires=wires, name=NAME
    )


@qml.transform
def decomposed(tape: QuantumScript, wires: Any = None) -> tuple[Any, Callable[[Any], Any]]:
    """Into operations that `fused` takes; one sample after the other, with a warning, if a decomposition takes no batch."""
    try:
        return decompose_once(tape, wires)
    except Exception as error:
        # PennyLane has no type for a decomposition that takes no batch: it raises whatever the arithmetic does.
        if tape.batch_size is None:
            raise
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    tapes, gathered = broadcast_expand(tape)
    parts = tuple(part for each in tapes for part in decompose_once(each, wires)[0])
    if len(tapes) > 1:
        warnings.warn(
            f"{NAME} runs {len(tapes)} samples one by one, because PennyLane cannot decompose this circuit for a batch "
            f"({why})",
            stacklevel=2,
        )
    return parts, gathered
