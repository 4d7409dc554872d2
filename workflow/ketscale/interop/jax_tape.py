"""PennyLane's tapes with JAX's numbers, evaluated by `jax_primitive`: all of JAX's transformations see through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.interpreters.partial_eval import DynamicJaxprTracer
from pennylane.devices.qubit.apply_operation import apply_operation
from pennylane.devices.qubit.initialize_state import create_initial_state
from pennylane.devices.qubit.measure import measure
from pennylane.operation import Channel, Operator
from pennylane.tape import QuantumScript

from ketscale.engines.noise.pauli_vectors import matrices
from ketscale.errors import UserError
from ketscale.interop import tape as tapes
from ketscale.interop.jax_primitive import evaluate


def results(tape: QuantumScript, readout: tuple[tapes.Operation, ...] = ()) -> tuple[Any, ...]:
    """What a tape of operations that `fused` takes measures without shots, on wires 0..n-1; one array for each measurement.

    In double precision, if JAX has it and all numbers do. readout: errors after the last gate.

    Raises:
        UserError: an angle is complex; with channels, a matrix may change.
    """
    qubits, batched = tape.num_wires, tape.batch_size is not None
    mixed = bool(readout) or any(isinstance(operation, Channel) for operation in tape.operations)
    if mixed and (tapes.preparation(tape) or not all(map(tapes.native, tape.operations))):
        raise UserError(tapes.NOT_NOISY)
    state = None
    gates: list[Operator] = []
    start = tapes.preparation(tape)
    if start is not None:
        state = create_initial_state(range(qubits), start, like="jax").reshape(-1, 2**qubits)
        state = state if batched else state[0]
    for operation in tape.operations[start is not None :]:
        if tapes.native(operation):
            gates.append(operation)
            continue
        state = apply_operation(operation, _state(gates, qubits, state, batched), is_state_batched=batched)
        state = state.reshape((-1, 2**qubits) if batched else (2**qubits,))
        gates = []
    asked = tapes.expectations(tape.measurements, qubits)
    tapes.check_measurements(tape.measurements)
    if asked is None:
        whole = _mixture(gates, readout, qubits, batched) if mixed else _state(gates, qubits, state, batched)
        function = tapes.of_mixture if mixed else measure
        return tuple(function(each, whole, is_state_batched=batched) for each in tape.measurements)
    written, numbers = tapes.read(gates, batched)
    # A sum of no words is zero.
    values = _evaluated(qubits, (*written, *readout), numbers, asked.words or ("I" * qubits,), state, batched)
    results = []
    for places, coefficients in zip(asked.places, asked.coefficients, strict=True):
        factors = (
            jnp.stack([jnp.asarray(each, values.dtype) for each in coefficients]) if places else jnp.zeros(0)
        )
        results.append(values[..., list(places)] @ factors)
    return tuple(results)


def _state(gates: Sequence[Operator], qubits: int, state: Any, batched: bool) -> Any:
    """The state after gates, as PennyLane has it."""
    written, numbers = tapes.read(gates, batched)
    after = _evaluated(qubits, written, numbers, None, state, batched)
    for phase in numbers.phases:
        after = after * jnp.exp(-1j * jnp.asarray(phase))[..., None]
    return tapes.unflattened(after, qubits, batched)


def _mixture(
    gates: Sequence[Operator], readout: tuple[tapes.Operation, ...], qubits: int, batched: bool
) -> Any:
    """The density matrix after gates and channels, as PennyLane has it."""
    written, numbers = tapes.read(gates, batched)
    vectors = _evaluated(qubits, (*written, *readout), numbers, None, None, batched)
    return tapes.unflattened(matrices(vectors.reshape(-1, 4**qubits), qubits, jnp), 2 * qubits, batched)


def _evaluated(
    qubits: int,
    operations: Any,
    numbers: tapes.Numbers,
    words: tuple[str, ...] | None,
    state: Any,
    batched: bool,
) -> Any:
    """The primitive's value; angles that are alike in what JAX does with them are a block.

    So the kernel knows which angles vmap's copies share, as it knows those of a batch of PennyLane's.
    """
    blocks: dict[object, list[tuple[tuple[str, int], Any]]] = {}
    for kind, values in (("input", numbers.inputs), ("weight", numbers.weights)):
        for place, value in enumerate(values):
            if jnp.iscomplexobj(value):
                raise UserError(tapes.COMPLEX)
            # What is done with a compiled function shows only when it has been traced: each of its values may differ.
            alike = value if isinstance(value, DynamicJaxprTracer) else getattr(value, "_trace", None)
            blocks.setdefault((kind, id(alike)), []).append(((kind, place), value))
    names = [name for block in blocks.values() for name, _ in block]
    columns = {name: ("input", number) for number, name in enumerate(names)}
    values = [*numbers.inputs, *numbers.weights, *([] if state is None else [state.real])] or [float]
    # Not all at once: a weakly typed number, such as jnp.arange(3) * 0.1 has, gives way to any precision that is named.
    real = jnp.promote_types(jnp.result_type(*values), jnp.float32)
    operands = [
        jnp.stack([jnp.asarray(value, real) for _, value in block], axis=-1) for block in blocks.values()
    ] or [jnp.zeros(0, real)]
    if state is not None:
        operands.append(state.astype(jnp.result_type(real, jnp.complex64)))
    if batched:
        operands = [each if each.ndim == 2 else each[None] for each in operands]
    gates = (gate._replace(columns=tuple(columns[each] for each in gate.columns)) for gate in operations)
    return evaluate(tapes.circuit(qubits, tuple(gates)), words, *operands)
