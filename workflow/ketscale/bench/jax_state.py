"""`jax`: a state-vector simulator in plain JAX, one compiled and vectorised value-and-gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ketscale.bench.cases import Call, Case
from ketscale.bench.gates import FIXED, GENERATED, ROT, rotation, terms_of
from ketscale.bench.xla import Xla
from ketscale.engines.circuits.circuit import Column, Gate


class JaxState:
    """The state of a sample is a tensor with an axis for each wire; gates are contracted with it.

    Raises:
        UserError: JAX is not installed, or has no such device.
    """

    uncapturable: str | None = "JAX compiles and launches by itself"

    def __init__(self, device: str) -> None:
        self._xla = Xla("jax", device)

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        jnp = self._xla.jax.numpy
        kind = np.complex64 if case.real == np.float32 else np.complex128
        self._xla.allow_double(kind == np.complex128)

        def values(row: Any, weights: Any) -> Any:
            state = jnp.zeros((2,) * case.circuit.qubits, kind).at[(0,) * case.circuit.qubits].set(1)
            for gate in case.circuit.gates:
                state = self._applied(gate, state, row, weights)
            return jnp.stack([self._value(state, word) for word in case.words])

        return self._xla.call(case, values)

    def _applied(self, gate: Gate, state: Any, row: Any, weights: Any) -> Any:
        jnp, count = self._xla.jax.numpy, len(gate.wires)
        matrix = self._matrix(gate, row, weights).astype(state.dtype).reshape((2,) * (2 * count))
        product = jnp.tensordot(matrix, state, axes=(tuple(range(count, 2 * count)), gate.wires))
        return jnp.moveaxis(product, tuple(range(count)), gate.wires)

    def _matrix(self, gate: Gate, row: Any, weights: Any) -> Any:
        jnp = self._xla.jax.numpy
        if not gate.columns:
            return jnp.asarray(FIXED[gate.name] if gate.matrix is None else np.array(gate.matrix))

        def generated(name: str, column: Column) -> Any:
            made = GENERATED[name]
            half = (row if column.kind == "input" else weights)[column.index] * made.factor
            kind = np.complex64 if half.dtype == np.float32 else np.complex128
            terms = (part.astype(kind) for part in terms_of(made.matrix))
            return rotation(jnp.cos(half), jnp.sin(half), *terms)

        if gate.name == "Rot":
            first, second, third = (
                generated(name, column) for name, column in zip(ROT, gate.columns, strict=True)
            )
            return third @ second @ first
        return generated(gate.name, gate.columns[0])

    def _value(self, state: Any, word: str) -> Any:
        """The expectation value of a word, by one flipped and signed copy of the state."""
        jnp = self._xla.jax.numpy
        other = state
        for wire, letter in enumerate(word):
            if letter in "XY":
                other = jnp.flip(other, wire)
            if letter in "YZ":
                shape = [2 if axis == wire else 1 for axis in range(len(word))]
                signs = np.array([-1j, 1j] if letter == "Y" else [1, -1]).astype(state.dtype)
                other = other * signs.reshape(shape)
        return jnp.real(jnp.vdot(state, other))
