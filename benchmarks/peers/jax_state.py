"""`jax`: a state-vector simulator in plain JAX, one compiled and vectorised value-and-gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.circuits import Call, Loss
from benchmarks.peers.gates import rotation, steps_of
from benchmarks.peers.on_jax import Jax
from ketscale.engines.circuits.circuit import Gate


class JaxState:
    """The state of a sample is a tensor with an axis for each wire; gates are contracted with it.

    Raises:
        UserError: JAX is not installed, or has no such device.
    """

    uncapturable: str | None = "JAX compiles and launches by itself"

    def __init__(self, name: str, device: torch.device) -> None:
        self._on = Jax(name, device.type)

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`. Precision is global: it holds when a call is first made."""
        jnp, qubits = self._on.jax.numpy, loss.circuit.qubits
        kind = np.complex64 if loss.real == np.float32 else np.complex128
        self._on.jax.config.update("jax_enable_x64", kind == np.complex128)

        def values(row: Any, weights: Any) -> Any:
            state = jnp.zeros((2,) * qubits, kind).at[(0,) * qubits].set(1)
            for gate in loss.circuit.gates:
                state = self._applied(gate, state, row, weights)
            return jnp.stack([self._value(state, word) for word in loss.words])

        return self._on.call(loss, values)

    def _applied(self, gate: Gate, state: Any, row: Any, weights: Any) -> Any:
        jnp, count = self._on.jax.numpy, len(gate.wires)
        matrix = self._matrix(gate, row, weights).astype(state.dtype).reshape((2,) * (2 * count))
        product = jnp.tensordot(matrix, state, axes=(tuple(range(count, 2 * count)), gate.wires))
        return jnp.moveaxis(product, tuple(range(count)), gate.wires)

    def _matrix(self, gate: Gate, row: Any, weights: Any) -> Any:
        jnp, product = self._on.jax.numpy, None
        for one, turn, square, factor, column in steps_of(gate):
            matrix = one
            if column is not None:
                half = (row if column.kind == "input" else weights)[column.index] * factor
                kind = np.complex64 if half.dtype == np.float32 else np.complex128
                parts = (part.astype(kind) for part in (one, turn, square))
                matrix = rotation(jnp.cos(half), jnp.sin(half), *parts)
            product = jnp.asarray(matrix) if product is None else matrix @ product
        return product

    def _value(self, state: Any, word: str) -> Any:
        """The expectation value of a word, by one flipped and signed copy of the state."""
        jnp, other = self._on.jax.numpy, state
        for wire, letter in enumerate(word):
            if letter in "XY":
                other = jnp.flip(other, wire)
            if letter in "YZ":
                shape = [2 if axis == wire else 1 for axis in range(len(word))]
                signs = np.array([-1j, 1j] if letter == "Y" else [1, -1]).astype(state.dtype)
                other = other * signs.reshape(shape)
        return jnp.real(jnp.vdot(state, other))
