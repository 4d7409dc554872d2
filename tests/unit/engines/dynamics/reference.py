"""An independent reference of dynamics: dense exponentials by scipy.

Generators are Kronecker products, and derivatives come from the exponential of a block matrix (Van Loan, IEEE Trans. Autom.
Control 23, 395, 1978), not from an adjoint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[Any]
# What a task is made of, by name: controls (segments, controls), parameters (terms,), rates (jumps,), duration (), and
# initial, an operator (d, d) of an open system, a ket (d,) or columns (d, k) of a closed one.
Values = dict[str, Array]


class Operators(NamedTuple):
    """Stacks of matrices (terms, d, d)."""

    drift: Array
    controls: Array
    jumps: Array


def evolved(operators: Operators, values: Values, closed: bool = False) -> Array:
    """What `values["initial"]` becomes, by the Lindblad equation, or, of a closed system, by Schrödinger's."""
    return _transported(operators, values, {}, closed)[0]


def derivative(operators: Operators, values: Values, directions: Values, closed: bool = False) -> Array:
    """The derivative of `evolved` where values change at once, each in its direction; one left out does not."""
    return _transported(operators, values, directions, closed)[1]


def _transported(
    operators: Operators, values: Values, directions: Values, closed: bool
) -> tuple[Array, Array]:
    tangents = {name: np.zeros_like(value) for name, value in values.items()} | directions
    generators, changes = (_generators(operators, each, closed) for each in (values, tangents))
    segments, n, _ = generators.shape
    shape = values["initial"].shape
    state, tangent = (each["initial"] if closed else each["initial"].ravel() for each in (values, tangents))
    blocks = np.zeros((segments, 2 * n, 2 * n), dtype=complex)
    blocks[:, :n, :n] = blocks[:, n:, n:] = values["duration"] / segments * generators
    blocks[:, :n, n:] = values["duration"] / segments * changes + tangents["duration"] / segments * generators
    for result in scipy.linalg.expm(blocks if directions else blocks[:, :n, :n]):
        if directions:
            tangent = result[:n, :n] @ tangent + result[:n, n:] @ state
        state = result[:n, :n] @ state
    return state.reshape(shape), tangent.reshape(shape)


def _generators(operators: Operators, values: Values, closed: bool) -> Array:
    """The generator of each segment, linear in `values`: -i H, or that of the Lindblad equation on rho's rows."""
    hamiltonians = np.einsum("p,pij->ij", values["parameters"], operators.drift) + np.einsum(
        "sk,kij->sij", values["controls"], operators.controls
    )
    if closed:
        return -1j * hamiltonians
    identity = np.eye(hamiltonians.shape[-1])
    built = -1j * (np.kron(hamiltonians, identity) - np.kron(identity, hamiltonians.swapaxes(-1, -2)))
    for rate, jump in zip(values["rates"], operators.jumps, strict=True):
        square = jump.conj().T @ jump / 2
        built += rate * (np.kron(jump, jump.conj()) - np.kron(square, identity) - np.kron(identity, square.T))
    return built
