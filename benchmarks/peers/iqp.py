"""Gram matrices of an IQP embedding: written by hand for it in torch and JAX, and by PennyLane's template on its devices."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import hadamard

from benchmarks.grams import GramCase, features_of
from benchmarks.peers.on_jax import Jax as OnJax
from benchmarks.runner import Call
from ketscale.optional import needed_for


def _signs(qubits: int) -> NDArray[np.float64]:
    """How the eigenphases of a basis state depend on the angles: (qubits + pairs, 2^qubits), each -1/2 or 1/2."""
    bits = np.arange(2**qubits) >> np.arange(qubits)[::-1, None] & 1
    z = 1.0 - 2 * bits
    return -np.concatenate([z, [z[one] * z[two] for one, two in combinations(range(qubits), 2)] or z[:0]]) / 2


def _hadamards(qubits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The Hadamards on the first half of the wires, and on the others: two small matrices take fewer operations than one."""
    first, second = (
        np.asarray(hadamard(2**wires), float) / 2 ** (wires / 2)
        for wires in (qubits // 2, qubits - qubits // 2)
    )
    return first, second


class Torch:
    """Vectorised by hand: phases of all states are one product of matrices, and Hadamards on all wires are two."""

    def __init__(self, name: str) -> None:
        pass

    def prepare(self, case: GramCase) -> Call:
        """See `grams.Own.prepare`."""
        x, signs = torch.tensor(features_of(case)), torch.tensor(_signs(case.qubits))
        first, second = (torch.tensor(half, dtype=torch.complex128) for half in _hadamards(case.qubits))
        one, two = torch.triu_indices(case.qubits, case.qubits, offset=1)

        def call() -> NDArray[np.float64]:
            phases = torch.cat([x, x[:, one] * x[:, two]], 1) @ signs
            diagonal = torch.polar(torch.ones_like(phases), phases)
            states = diagonal * 2 ** (-case.qubits / 2)
            for _ in range(case.layers - 1):
                rotated = first @ states.unflatten(1, (len(first), len(second))) @ second
                states = diagonal * rotated.flatten(1)
            overlaps = states @ states.mH
            # Faster than through the absolute values, which are roots.
            return (overlaps.real.square() + overlaps.imag.square()).numpy()

        return call


class Jax:
    """The same in JAX, compiled whole.

    Raises:
        UserError: JAX is not installed.
    """

    def __init__(self, name: str) -> None:
        self._jax = OnJax(name, "cpu").jax

    def prepare(self, case: GramCase) -> Call:
        """See `grams.Own.prepare`."""
        jax, jnp = self._jax, self._jax.numpy
        jax.config.update("jax_enable_x64", True)
        x, signs = jnp.asarray(features_of(case)), jnp.asarray(_signs(case.qubits))
        first, second = (jnp.asarray(half, complex) for half in _hadamards(case.qubits))
        one, two = np.triu_indices(case.qubits, 1)

        @jax.jit
        def gram(x: Any) -> Any:
            diagonal = jnp.exp(1j * (jnp.concatenate([x, x[:, one] * x[:, two]], 1) @ signs))
            states = diagonal * 2 ** (-case.qubits / 2)
            for _ in range(case.layers - 1):
                rotated = first @ states.reshape(-1, len(first), len(second)) @ second
                states = diagonal * rotated.reshape(states.shape)
            overlaps = states @ states.conj().T
            return overlaps.real**2 + overlaps.imag**2

        return lambda: np.asarray(gram(x))


class _PennyLane:
    """PennyLane's template `IQPEmbedding`.

    Raises:
        UserError: PennyLane is not installed.
    """

    def __init__(self, name: str) -> None:
        with needed_for(f"simulator {name}"):
            import pennylane
        self._qml: Any = pennylane

    def _embedded(self, case: GramCase, device: str) -> Any:
        """The QNode of the state of features (..., qubits)."""
        qml, wires = self._qml, range(case.qubits)

        @qml.qnode(qml.device(device, wires=case.qubits), interface=None, diff_method=None)
        def state(features: Any) -> Any:
            qml.IQPEmbedding(features, wires=wires, n_repeats=case.layers)
            return qml.state()

        return state


class Broadcast(_PennyLane):
    """The states of all samples in one call of default.qubit, and one product of matrices."""

    def prepare(self, case: GramCase) -> Call:
        """See `grams.Own.prepare`."""
        x, state = features_of(case), self._embedded(case, "default.qubit")

        def call() -> NDArray[np.float64]:
            states = state(x)
            return np.abs(states @ states.conj().T) ** 2

        return call


class Loop(_PennyLane):
    """The state of each sample in a call of lightning.qubit, and one product of matrices."""

    def prepare(self, case: GramCase) -> Call:
        """See `grams.Own.prepare`."""
        x, state = features_of(case), self._embedded(case, "lightning.qubit")

        def call() -> NDArray[np.float64]:
            states = np.array([state(row) for row in x])
            return np.abs(states @ states.conj().T) ** 2

        return call


class Pairs(_PennyLane):
    """`qml.kernels.square_kernel_matrix`, as PennyLane's guide has it: a circuit of lightning.qubit for each pair.

    Only the pairs of `most` samples are timed.
    """

    most = 20

    def prepare(self, case: GramCase) -> Call:
        """See `grams.Own.prepare`."""
        qml, wires, x = self._qml, range(case.qubits), features_of(case)[: case.samples]

        @qml.qnode(qml.device("lightning.qubit", wires=case.qubits), interface=None, diff_method=None)
        def overlap(one: Any, two: Any) -> Any:
            qml.IQPEmbedding(one, wires=wires, n_repeats=case.layers)
            qml.adjoint(qml.IQPEmbedding)(two, wires=wires, n_repeats=case.layers)
            return qml.probs(wires=wires)

        def kernel(one: Any, two: Any) -> float:
            return float(overlap(one, two)[0])

        return lambda: np.asarray(
            qml.kernels.square_kernel_matrix(x, kernel, assume_normalized_kernel=True), float
        )
