"""Noisy circuits by the operators of torch or JAX: on any device, to any order of derivatives; what the kernels are compared with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import torch

from ketscale.engines.noise.channels import PAULIS
from ketscale.engines.noise.passes import KINDS, Chain, Noisy, factor_tables
from ketscale.engines.noise.sweep import OTHERS


def constants(like: Any, library: Any) -> Callable[[Any], Any]:
    """A function that makes arrays of the library, with this one's precision and on its device."""
    if library is torch:
        return partial(torch.asarray, dtype=like.dtype, device=like.device)
    return partial(library.asarray, dtype=like.dtype)


class Features:
    """The features of a program as a function of inputs and weights, by the operators of torch or JAX.

    inputs: how many columns there are of them.
    """

    def __init__(self, program: Noisy, inputs: int) -> None:
        first = {"input": 0, "weight": inputs}
        of_kind = {kind: [each.of for each in program.features if each.kind == kind] for kind in KINDS}
        self.inputs = inputs
        self._factors = np.array([angle.factor for (angle,) in of_kind["cos"]])
        self._places = {
            kind: np.array([[first[angle.kind] + angle.index for angle in of] for of in each])
            for kind, each in of_kind.items()
            if each
        }

    def __call__(self, columns: Any, library: Any = torch) -> Any:
        """The features (batch, features) at inputs and weights side by side (batch, columns)."""
        made = []
        if "cos" in self._places:
            turns = columns[:, self._places["cos"][:, 0]] * constants(columns, library)(self._factors)
            made += [library.cos(turns), library.sin(turns)]
        for kind in OTHERS:
            if kind in self._places:
                values = columns[:, self._places[kind]]
                made.append(library.sqrt(1 - values[..., 0]) if kind == "root" else values.prod(-1))
        return library.concatenate(made, 1) if made else columns[:, :0]


def values(program: Noisy, features: Any, library: Any = torch) -> Any:
    """The measured words (batch, words) for features (batch, features); `library` is torch or jax.numpy."""
    batch, count = len(features), program.qubits
    column = {feature: number for number, feature in enumerate(program.features)}
    constant = constants(features, library)
    # All factors at once, since XLA takes long to compile many operations.
    places, parts = factor_tables(program)
    linear = library.concatenate([constant(np.ones((batch, 1))), features], 1)[:, places]
    factors = iter(library.einsum("bfk,fkij->fbij", linear, constant(parts)))

    def of_chain(chain: Chain) -> Any:
        return reduce(lambda made, _: next(factors) @ made, chain, constant(np.eye(4)))

    start = reduce(np.kron, [np.array([1.0, 0, 0, 1])] * count)
    vector = library.broadcast_to(constant(start), (batch, 4**count))
    for each in program.passes:
        axes, front = [1 + site for site in each.sites], list(range(1, 1 + len(each.sites)))
        state = library.moveaxis(vector.reshape(batch, *(4,) * count), axes, front)
        shape, state = state.shape, state.reshape(batch, 4 ** len(axes), -1)
        if each.matrix is not None:
            state = constant(each.matrix) @ state
        else:
            first, second = map(of_chain, each.chains)
            state = (first @ state.reshape(batch, 4, -1)).reshape(batch, 4, 4, -1)
            state = (second[..., None, :, :] @ state).reshape(batch, 16, -1)
            state = state[:, each.order.argsort()] * constant(each.factors)[:, None]
            if each.spread is not None:
                slope = constant(each.spread.slope * (np.arange(16) > 0))[:, None]
                state = state * (1 + features[:, column[each.spread.feature], None, None] * slope)
        vector = library.moveaxis(state.reshape(shape), front, axes).reshape(batch, -1)
    return vector[:, program.places]


def matrices(vectors: Any, qubits: int, library: Any = torch) -> Any:
    """The density matrices (batch, 2**n, 2**n) of Pauli vectors (batch, 4**n)."""
    state = (vectors + 0j).reshape(-1, *(4,) * qubits)
    letters = constants(state, library)(PAULIS / 2)
    for _ in range(qubits):  # each letter in front becomes a row and a column at the end
        state = library.tensordot(state, letters, ([1], [0]))
    rows = [*range(1, 2 * qubits, 2)], [*range(1, 1 + qubits)]
    return library.moveaxis(state, *rows).reshape(-1, 2**qubits, 2**qubits)
