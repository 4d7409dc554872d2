"""Expectation values of a state's superposition with its own mirror image and a constant state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator
from ketscale.errors import UserError

# Added to norms, so that a superposition that cancels is not divided by 0, as in the published Hydra models.
TINY = 1e-9


class Superposition(NamedTuple):
    """alpha |psi> + beta R|psi> + |constant>, where R reverses the order of all wires; not normalised.

    coefficients: alpha and beta, complex (2,). constant: complex (2**n,), the same for all samples.
    """

    coefficients: torch.Tensor
    constant: torch.Tensor


def superposed(
    simulator: Simulator,
    circuit: Circuit,
    angles: Angles,
    paulis: Sequence[str],
    superposition: Superposition,
) -> torch.Tensor:
    """Expectation values of a normalised superposition of each final state, real (batch, len(paulis)).

    A simulator with a method `superposed` of these arguments does it in its own way, others by way of their states.

    Raises:
        UserError: as for `Simulator.expval`, or the superposition does not fit.
    """
    own = getattr(simulator, "superposed", None)
    if own is None:
        return measured(simulator, mixed(simulator, circuit, angles, superposition), paulis)
    values: torch.Tensor = own(circuit, angles, paulis, superposition)
    return values


@lru_cache(maxsize=64)
def reversal(qubits: int) -> tuple[int, ...]:
    """Entry i is the basis state that becomes i when all wires are reversed, (2**qubits,)."""
    return tuple(int(f"{i:0{qubits}b}"[::-1], 2) for i in range(2**qubits))


def _reversed(states: torch.Tensor, qubits: int) -> torch.Tensor:
    """States (batch, 2**n) with all wires reversed; no table of places, which a GPU would wait for."""
    wires = states.unflatten(1, (2,) * qubits)
    return wires.permute(0, *range(qubits, 0, -1)).flatten(1)


def check_superposition(circuit: Circuit, angles: Angles, superposition: Superposition) -> None:
    """Raise UserError unless a superposition fits a circuit's state in shapes, precision and device."""
    for name, tensor, size in zip(superposition._fields, superposition, (2, 2**circuit.qubits), strict=True):
        dtype, device = angles.inputs.dtype.to_complex(), angles.inputs.device
        if tuple(tensor.shape) != (size,) or tensor.dtype != dtype or tensor.device != device:
            raise UserError(
                f"a superposition's {name} must be ({size},) of {dtype} on {device}, "
                f"not {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}"
            )


def mixed(
    simulator: Simulator, circuit: Circuit, angles: Angles, superposition: Superposition
) -> torch.Tensor:
    """The superposition of each final state, complex (batch, 2**n), not normalised."""
    check_superposition(circuit, angles, superposition)
    state = simulator.state(circuit, angles)
    alpha, beta = superposition.coefficients
    return alpha * state + beta * _reversed(state, circuit.qubits) + superposition.constant


def measured(simulator: Simulator, states: torch.Tensor, paulis: Sequence[str]) -> torch.Tensor:
    """Expectation values (batch, len(paulis)) of states (batch, 2**n), complex, which are normalised first."""
    norm = torch.linalg.vector_norm(torch.view_as_real(states).flatten(1), dim=1, keepdim=True)
    empty = Angles(norm[:, :0], norm.new_empty(0))
    qubits = states.shape[1].bit_length() - 1
    return simulator.expval(Circuit(qubits, ()), empty, paulis, states / (norm + TINY))
