"""What `interop.jax_primitive` differentiates: shifted angles, by the rule of `hessians`, or circuits in JAX's own operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.hessians import Shifts, shift_tables
from ketscale.engines.circuits.fused.program import Rotation, Word, reduce
from ketscale.engines.circuits.fused.schedule import between_moves


class Shifted:
    """A point at all shifts of one of its blocks, with a first dimension for these."""

    def __init__(self, point: Sequence[Any], number: int, shifts: Shifts) -> None:
        block = point[number]
        self.count = block.shape[-1]
        moves, self.columns, coefficients = shift_tables(shifts, self.count)
        self.coefficients = jnp.asarray(coefficients, block.dtype)
        self.point = [each[None] for each in point]
        moves = moves.reshape(-1, *[1] * (block.ndim - 1), self.count)
        self.point[number] = block + jnp.asarray(moves, block.dtype)

    def along(self, values: Any, move: Any) -> Any:
        """The derivative along a tangent of the block, of numbers (shifts, ..., columns) at all shifts."""
        scales = jnp.moveaxis(move[..., self.columns] * self.coefficients, -1, 0)
        return (values * scales[..., None]).sum(0)

    def slopes(self, values: Any) -> Any:
        """The derivatives (..., columns) by the block, of numbers (shifts, ...) at all shifts."""
        each = jnp.moveaxis(values, 0, -1) * self.coefficients
        return jnp.zeros((*each.shape[:-1], self.count), each.dtype).at[..., self.columns].add(each)


def _words(words: Sequence[Rotation | Word], state: Any) -> tuple[Any, ...]:
    """Masks x and z of words, and factors i**-ys: (P psi)_q = factor (-1)**(z & q) psi_(q ^ x)."""
    x, z = (np.array([getattr(word, name) for word in words], np.int32) for name in "xz")
    return x, z, jnp.asarray([(-1j) ** (word.ys % 4) for word in words], state.dtype)


def side_by_side(blocks: Sequence[Any]) -> Any:
    """Blocks (..., columns) whose leading dimensions broadcast, as one."""
    leading = jnp.broadcast_shapes(*(each.shape[:-1] for each in blocks))
    return jnp.concatenate([jnp.broadcast_to(each, (*leading, each.shape[-1])) for each in blocks], axis=-1)


def plain(*operands: Any, circuit: Circuit, words: tuple[str, ...] | None) -> Any:
    """See `jax_primitive.evaluate`; differentiable to any order."""
    prepared = jnp.iscomplexobj(operands[-1])
    blocks = operands[: len(operands) - prepared]
    real, leading = blocks[0].dtype, jnp.broadcast_shapes(*(each.shape[:-1] for each in operands))
    angles = side_by_side((*blocks, jnp.ones((*leading, 1), real)))
    size, complex_ = 2**circuit.qubits, jnp.result_type(real, jnp.complex64)
    start = operands[-1] if prepared else jnp.zeros(size, complex_).at[0].set(1)
    state, program = jnp.broadcast_to(start, (*leading, size)), reduce(circuit, words)
    for move, steps in between_moves(program):
        if move is not None:
            source, factors = move.gathered()
            state = state[..., source] * jnp.asarray(factors, complex_)
        if steps:
            state = _rotated(state, angles, steps)
    if program.words is None:
        if program.order is not None:
            powers = jnp.asarray(1j ** (np.array(program.powers) % 4), complex_)
            state = (state * powers)[..., np.argsort(program.order)]
        return state
    images = jax.vmap(partial(_image, state))(*_words(program.words, state))
    signs = jnp.asarray([word.sign for word in program.words], real)
    return signs * jnp.moveaxis((state.conj() * images).real.sum(-1), 0, -1)


def _image(state: Any, x: Any, z: Any, factor: Any) -> Any:
    """A word times a state."""
    index = jnp.arange(state.shape[-1], dtype=jnp.int32)
    minus = jax.lax.population_count(index & z) & 1
    return factor * (1 - 2 * minus) * state[..., index ^ x]


def _rotated(state: Any, angles: Any, rotations: Sequence[Rotation]) -> Any:
    """States (..., 2**n) after rotations, in a loop, so that XLA compiles one of them; the last angle is 1, for constants."""
    constant = angles.shape[-1] - 1
    columns = [step.angle.index if step.angle.kind == "input" else constant for step in rotations]
    factors = jnp.asarray([step.angle.factor / 2 for step in rotations], angles.dtype)
    half = jnp.moveaxis(angles[..., np.array(columns)] * factors, -1, 0)[..., None]

    def turn(state: Any, step: Any) -> Any:
        cosine, sine, *word = step
        return cosine * state - 1j * sine * _image(state, *word), None

    return jax.lax.scan(turn, state, (jnp.cos(half), jnp.sin(half), *_words(rotations, state)))[0]
