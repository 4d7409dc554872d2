"""Noisy circuits by the operators of torch or JAX: on any device, to any order of derivatives; what the kernels are compared with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import torch

from ketscale.engines.noise.channels import PAULIS
from ketscale.engines.noise.passes import Chain, FeatureTables, Noisy, factor_tables
from ketscale.engines.noise.sweep import OTHERS, SPREAD_SLOPE


def constants(like: Any, library: Any) -> Callable[[Any], Any]:
    """A function that makes arrays of the library, with this one's precision and on its device."""
    if library is torch:
        return partial(torch.asarray, dtype=like.dtype, device=like.device)
    return partial(library.asarray, dtype=like.dtype)


def features_of(tables: FeatureTables, columns: Any, library: Any = torch) -> Any:
    """The features (batch, features) at inputs and weights side by side (batch, columns)."""
    turns = columns[:, tables.turn_columns] * constants(columns, library)(tables.turn_factors)
    features = [library.cos(turns), library.sin(turns)]
    for kind, name in enumerate(OTHERS):
        own = tables.others[tables.others[:, 0] == kind]
        first, second = columns[:, own[:, 1]], columns[:, own[:, 2]]
        match name:
            case "strength":
                features.append(first)
            case "root":
                features.append(library.sqrt(1 - first))
            case "product":
                features.append(first * second)
    return library.concatenate(features, 1)


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
                slope = constant(SPREAD_SLOPE * (np.arange(16) > 0))[:, None]
                state = state * (1 + features[:, column[each.spread], None, None] * slope)
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
