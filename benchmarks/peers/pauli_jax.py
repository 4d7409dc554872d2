"""Noisy circuits in plain JAX, as a careful colleague would write them: Pauli vectors (4**n, batch), samples last.

The noise of each qubit is multiplied into the matrix of its gate, and that of a CNOT into the signs of its permutation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ketscale.engines.noise.channels import transfer


def _turn(axis: int, angles: Any) -> Any:
    """Matrices (4, 4, ...) of rotations about X, Y or Z (1, 2, 3)."""
    first, second = ((axis - 1 + step) % 3 + 1 for step in (1, 2))
    one, cosine, sine = jnp.ones_like(angles), jnp.cos(angles), jnp.sin(angles)
    rows = [[jnp.zeros_like(angles)] * 4 for _ in range(4)]
    rows[0][0] = rows[axis][axis] = one
    rows[first][first] = rows[second][second] = cosine
    rows[second][first], rows[first][second] = sine, -sine
    return jnp.stack([jnp.stack(row) for row in rows])


def expval(qubits: int, layers: int, depolarising: float, damping: float) -> Callable[[Any, Any], Any]:
    """A function of inputs (batch, qubits) and weights: <Z> of each qubit, (batch, qubits).

    RX of each input; then layers of Rot, depolarising and amplitude damping on each qubit, and of a ring of CNOTs, each with
    depolarising of both qubits, one by one.
    """
    flat = np.diag([1, *[1 - 4 * depolarising / 3] * 3])
    keep = np.sqrt(1 - damping)
    noise = transfer([[[1, 0], [0, keep]], [[0, np.sqrt(damping)], [0, 0]]]) @ flat
    cnot = transfer([np.eye(4)[[0, 1, 3, 2]]])
    order = np.abs(cnot).argmax(1)
    signs = cnot[np.arange(16), order] * np.kron(np.diag(flat), np.diag(flat))
    start = np.array([1.0])
    for _ in range(qubits):
        start = np.kron(start, [1.0, 0, 0, 1.0])

    def applied(state: Any, matrix: Any, qubit: int) -> Any:
        shaped = state.reshape(4**qubit, 4, -1, state.shape[-1])
        of_samples = matrix.ndim == 3
        return jnp.einsum("ijk,ajbk->aibk" if of_samples else "ij,ajbk->aibk", matrix, shaped).reshape(
            state.shape
        )

    def coupled(state: Any, control: int, target: int) -> Any:
        shaped = jnp.moveaxis(state.reshape(*(4,) * qubits, -1), (control, target), (0, 1))
        permuted = shaped.reshape(16, -1)[order] * signs[:, None]
        return jnp.moveaxis(permuted.reshape(shaped.shape), (0, 1), (control, target)).reshape(state.shape)

    def values(inputs: Any, weights: Any) -> Any:
        angles = weights.reshape(layers, qubits, 3)
        state = jnp.broadcast_to(jnp.asarray(start)[:, None], (4**qubits, len(inputs)))
        for layer in range(layers):
            for qubit in range(qubits):
                phi, theta, omega = angles[layer, qubit]
                matrix = noise @ _turn(3, omega) @ _turn(2, theta) @ _turn(3, phi)
                if layer == 0:
                    matrix = jnp.einsum("ij,jkb->ikb", matrix, _turn(1, inputs[:, qubit]))
                state = applied(state, matrix, qubit)
            for qubit in range(qubits):
                state = coupled(state, qubit, (qubit + 1) % qubits)
        return jnp.stack([state[3 * 4 ** (qubits - 1 - qubit)] for qubit in range(qubits)], 1)

    return values


def jitted(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Values and gradients of their sum, compiled."""

    def total(inputs: Any, weights: Any) -> tuple[Any, Any]:
        values = function(inputs, weights)
        return values.sum(), values

    return jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))
