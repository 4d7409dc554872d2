"""PennyLane's operations decomposed into those that `fused` supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pennylane as qml
import torch
from pennylane.devices.preprocess import decompose
from pennylane.operation import Channel, Operator, StatePrepBase
from pennylane.ops.op_math import Adjoint, Controlled, Evolution, Exp, Pow, SymbolicOp
from pennylane.tape import QuantumScript

from ketscale.errors import UserError
from ketscale.interop.recorder import Looked, is_recorded
from ketscale.interop.tape import NAME, NOT_NOISY, imaginary, native, sentence

# Decomposed by way of their matrices, which has no derivative where angles are degenerate, such as at the identity.
MATRICES = (qml.QubitUnitary, qml.SpecialUnitary, Exp)

# By how much U U^dagger may differ from the identity where a decomposition stands for U. A matrix that is applied as it is
# given takes 30 times as long in from_qnode (twelve of two qubits, 64 samples).
UNITARY = 1e-9

# Rotations about Pauli words that are gates of `fused`; the others are PauliRot.
ROTATIONS = {
    "X": qml.RX, "Y": qml.RY, "Z": qml.RZ, "XX": qml.IsingXX, "YY": qml.IsingYY, "ZZ": qml.IsingZZ,
}  # fmt: skip


def rests_on_a_matrix(operation: Operator) -> bool:
    """Whether an operation, or what it is the power, the adjoint or the controlled form of, is given by a matrix."""
    while not isinstance(operation, MATRICES):
        if not isinstance(operation, SymbolicOp):
            return False
        operation = operation.base
    return True


def _accepted(operation: Operator) -> bool:
    # default.qubit normalises the state after a projector, which its matrix alone does not do.
    if isinstance(operation, qml.Projector) or _opened(operation):
        return False
    base = operation.base if isinstance(operation, Controlled) else operation
    return native(operation) or (operation.has_matrix and _rotations(base) is None and _by_matrix(operation))


def _opened(operation: Operator) -> list[Operator]:
    """The X on each wire that controls a matrix by |0>, which PennyLane forgets where it binds numbers."""
    if not isinstance(operation, qml.ControlledQubitUnitary):
        return []
    controls = zip(operation.control_wires, operation.control_values, strict=True)
    return [qml.X(wire) for wire, value in controls if not value]


def _by_matrix(operation: Operator) -> bool:
    if rests_on_a_matrix(operation) and _varies(operation):
        return True
    return not _unitary(operation) or not operation.has_decomposition


def _varies(operation: Operator) -> bool:
    """Whether its numbers may be others at the next call, as those of tensors may."""
    return operation.batch_size is not None or any(
        isinstance(value, torch.Tensor) or qml.math.requires_grad(value) or qml.math.is_abstract(value)
        for value in operation.data
    )


def _unitary(operation: Operator) -> bool:
    """False where a matrix is not unitary, or may not be: PennyLane's decompositions take it for granted."""
    while isinstance(operation, SymbolicOp) and not isinstance(operation, Exp):
        operation = operation.base
    if isinstance(operation, Exp):
        return _time(operation.coeff) is not None and _hermitian(sentence(operation.base))
    if isinstance(operation, qml.DiagonalQubitUnitary):
        return not _varies(operation) and np.allclose(np.abs(operation.data[0]), 1, rtol=0, atol=UNITARY)
    if not isinstance(operation, qml.QubitUnitary) or _varies(operation):
        return True
    matrix = np.asarray(operation.data[0])
    return np.allclose(matrix @ matrix.conj().T, np.eye(len(matrix)), rtol=0, atol=UNITARY)


def _hermitian(terms: Any) -> bool:
    """Whether a generator is known to be Hermitian: a sum of Pauli words with real factors."""
    return terms is not None and not any(map(imaginary, terms.values()))


def _decomposition(operation: Operator) -> Sequence[Operator]:
    """An operation's own decomposition, but of evolutions and of controlled ones and gates on one wire.

    PennyLane decomposes these by their matrices. That drops rotations by 0, which have derivatives, and allows neither
    every batch nor angles that JAX compiles.
    """
    flips = _opened(operation)
    if flips:
        return [*flips, qml.ControlledQubitUnitary(*operation.data, wires=operation.wires), *flips]
    evolved = _rotations(operation)
    if evolved is not None:
        return evolved
    if isinstance(operation, Controlled):
        base = operation.base
        parts = _rotations(base)
        if (
            parts is None
            and len(base.wires) == 1
            and base.data
            and base.has_decomposition
            and not isinstance(base, qml.GlobalPhase)
            and not rests_on_a_matrix(base)
        ):
            parts = base.decomposition()
        if parts is not None:
            controls, values = operation.control_wires, operation.control_values
            return [qml.ctrl(part, controls, control_values=values) for part in parts]
    decomposition: Sequence[Operator] = operation.decomposition()
    return decomposition


def _rotations(operation: Operator) -> Sequence[Operator] | None:
    """What an exponential, its power or its adjoint is decomposed into: rotations about Pauli words, if these commute.

    An evolution is else a plain exponential, to which PennyLane binds numbers as it does not to all evolutions. None for
    what PennyLane decomposes itself.
    """
    factor, adjoint = 1, False
    while isinstance(operation, Adjoint | Pow):
        adjoint ^= isinstance(operation, Adjoint)
        factor *= -1 if isinstance(operation, Adjoint) else operation.z
        operation = operation.base
    if not isinstance(operation, Exp):
        return None
    time = operation.param if isinstance(operation, Evolution) else _time(operation.coeff)
    terms: Any = None if time is None else sentence(operation.base)
    hermitian = _hermitian(terms)
    if adjoint and not hermitian:
        return None
    if not hermitian or not all(a.commutes_with(b) for a, b in combinations(terms, 2)):
        return [Exp(operation.base, -1j * factor * time)] if isinstance(operation, Evolution) else None
    return [_rotation(word, 2 * factor * time * qml.math.real(each)) for word, each in terms.items()]


def _time(coefficient: Any) -> Any:
    """The t of an exponential's coefficient -i t; None if it has a real part, or may have one.

    A record of it is compared with numbers.
    """
    if qml.math.is_abstract(coefficient):
        return None
    if not is_recorded(coefficient) and np.any(qml.math.unwrap([qml.math.real(coefficient)])[0]):
        return None
    return -qml.math.imag(coefficient)


def _rotation(word: Any, angle: Any) -> Operator:
    letters, wires = "".join(word.values()), list(word)
    if not letters:
        return qml.GlobalPhase(angle / 2)
    if letters in ROTATIONS:
        return ROTATIONS[letters](angle, wires=wires)
    return qml.PauliRot(angle, letters, wires=wires)


@qml.transform
def decomposed(
    tape: QuantumScript, wires: Any = None, mixed: bool = False
) -> tuple[Any, Callable[[Any], Any]]:
    """Into operations that `fused` takes, or whose matrices PennyLane applies, broadcast parameters as they are.

    mixed: whether there are density matrices even without channels. They begin with |0...0>, so gates prepare states.

    Raises:
        UserError: a decomposition takes no batch; a channel is not as `fused` takes it; a state for density matrices may be
            differentiated.
    """
    for each in tape.operations:
        if isinstance(each, Channel) and not native(each) and not each.has_decomposition:
            raise UserError(
                f"{each.name} on wires {each.wires.tolist()}: {NAME} takes such a channel on two wires at most, and with numbers "
                "that are not trained; of its own channels strengths are trained: BitFlip, PhaseFlip, AmplitudeDamping and more"
            )
    mixed = mixed or any(isinstance(operation, Channel) for operation in tape.operations)
    prepared = [x for op in tape.operations if mixed and isinstance(op, StatePrepBase) for x in op.data]
    if any(map(qml.math.requires_grad, prepared)):  # these gates have no derivatives at amplitudes of 0
        raise UserError(NOT_NOISY)
    try:
        return decompose(
            tape,
            _accepted,
            skip_initial_state_prep=not mixed,
            decomposer=_decomposition,
            device_wires=wires,
            name=NAME,
        )
    except Exception as error:
        # PennyLane has no type for a decomposition that does not support batches: it raises what the arithmetic does.
        if tape.batch_size is None or isinstance(error, Looked):
            raise
        raise UserError(
            f"PennyLane cannot decompose a batch of these operations ({type(error).__name__}): run the samples one by one, "
            f"by qml.transforms.broadcast_expand on the device {NAME}"
        ) from error
