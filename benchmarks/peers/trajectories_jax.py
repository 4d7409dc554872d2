"""Quantum trajectories in plain JAX, as a careful colleague would write them: one pure state, mapped over samples and draws.

Pauli errors are multiplied into the matrices of gates. Each damping's odds are constants to derivatives, and its quotient is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ERRORS = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]], [[1, 0], [0, 1]]])


def _rot(phi: Any, theta: Any, omega: Any) -> Any:
    cosine, sine = jnp.cos(theta / 2), jnp.sin(theta / 2)
    total, difference = jnp.exp(-0.5j * (phi + omega)), jnp.exp(0.5j * (phi - omega))
    return jnp.array([[total * cosine, -difference * sine], [sine / difference, cosine / total]])


def _applied(state: Any, matrix: Any, qubit: int) -> Any:
    return jnp.einsum("ij,ajb->aib", matrix, state.reshape(2**qubit, 2, -1)).flatten()


def _coupled(state: Any, control: int, target: int) -> Any:
    shaped = state.reshape((2,) * (state.size.bit_length() - 1))
    off, on = (jnp.take(shaped, bit, axis=control) for bit in (0, 1))
    return jnp.stack([off, jnp.flip(on, axis=target - (target > control))], axis=control).flatten()


def sampled(
    qubits: int, layers: int, depolarising: float, damping: float, number: int
) -> Callable[[Any, Any], Any]:
    """Means over so many trajectories, and gradients, of inputs (batch, qubits) and weights, compiled.

    The circuit and values of `pauli_jax.expval`.
    """

    def error(draw: Any) -> Any:
        return jnp.asarray(_ERRORS)[jnp.minimum(jnp.floor(3 * draw / depolarising), 3).astype(int)]

    def damped(state: Any, quotient: Any, draw: Any, qubit: int) -> tuple[Any, Any]:
        shaped = state.reshape(2**qubit, 2, -1)
        excited = (jnp.abs(shaped[:, 1]) ** 2).sum()
        jumps = draw < damping * jax.lax.stop_gradient(excited)
        chance = jnp.where(jumps, damping * excited, 1 - damping * excited)
        scale = jax.lax.rsqrt(jnp.where(jumps, excited, 1 - damping * excited))
        lower = jnp.where(jumps, shaped[:, 1], shaped[:, 0]) * scale
        upper = jnp.where(jumps, 0, shaped[:, 1] * (np.sqrt(1 - damping) * scale))
        return jnp.stack([lower, upper], 1).flatten(), quotient * chance / jax.lax.stop_gradient(chance)

    def of_one(weights: Any, inputs: Any, uniform: Any) -> Any:
        angles, draw = weights.reshape(layers, qubits, 3), iter(uniform)
        state, quotient = jnp.zeros(2**qubits, complex).at[0].set(1), 1.0
        errors = [_rot(np.pi / 2, inputs[qubit], -np.pi / 2) for qubit in range(qubits)]  # RX
        for layer in range(layers):
            for qubit in range(qubits):
                gate = error(next(draw)) @ _rot(*angles[layer, qubit]) @ errors[qubit]
                state, quotient = damped(_applied(state, gate, qubit), quotient, next(draw), qubit)
                errors[qubit] = None
            for qubit in range(qubits):
                pair = (qubit, (qubit + 1) % qubits)
                for wire in pair:
                    state = state if errors[wire] is None else _applied(state, errors[wire], wire)
                state = _coupled(state, *pair)
                for wire in pair:
                    errors[wire] = error(next(draw))
        for qubit in range(qubits):
            state = state if errors[qubit] is None else _applied(state, errors[qubit], qubit)
        chances = (jnp.abs(state) ** 2).reshape((2,) * qubits)
        ones = [chances.sum(tuple({*range(qubits)} - {qubit}))[1] for qubit in range(qubits)]
        return quotient * (chances.sum() - 2 * jnp.stack(ones))

    def total(inputs: Any, weights: Any, key: Any) -> tuple[Any, Any]:
        uniform = jax.random.uniform(key, (len(inputs), number, 4 * qubits * layers))
        values = jax.vmap(jax.vmap(partial(of_one, weights), (None, 0)))(inputs, uniform).mean(1)
        return values.sum(), values

    compiled, seeds = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True)), itertools.count()

    def called(inputs: Any, weights: Any) -> Any:
        (_, values), slopes = jax.block_until_ready(compiled(inputs, weights, jax.random.key(next(seeds))))
        return values, slopes

    return called
