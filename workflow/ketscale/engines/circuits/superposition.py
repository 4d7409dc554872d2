"""Expectation values of a state's superposition with its own mirror image and a constant state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator, Superposition
from ketscale.errors import UserError

# Keeps a superposition that cancels from being divided by 0, as the published Hydra models do.
TINY = 1e-9


@lru_cache(maxsize=64)
def reversal(qubits: int) -> tuple[int, ...]:
    """Entry i is the basis state that the reversal of all wires exchanges with i."""
    return tuple(int(f"{i:0{qubits}b}"[::-1], 2) for i in range(2**qubits))


def check_superposition(circuit: Circuit, angles: Angles, superposition: Superposition) -> None:
    """Raise UserError unless a superposition has the shapes, the precision and the device of a circuit's state."""
    for name, tensor, size in zip(superposition._fields, superposition, (2, 2**circuit.qubits), strict=True):
        dtype, device = angles.inputs.dtype.to_complex(), angles.inputs.device
        if tuple(tensor.shape) != (size,) or tensor.dtype != dtype or tensor.device != device:
            raise UserError(
                f"a superposition's {name} must be ({size},) of {dtype} on {device}, "
                f"not {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}"
            )


class ThroughStates:
    """Gives a simulator `superposed` by way of its states, for those that have no shorter one."""

    def superposed(
        self: Simulator,
        circuit: Circuit,
        angles: Angles,
        paulis: Sequence[str],
        superposition: Superposition,
    ) -> torch.Tensor:
        """See `Simulator.superposed`."""
        return through_states(self, circuit, angles, paulis, superposition)


def through_states(
    simulator: Simulator,
    circuit: Circuit,
    angles: Angles,
    paulis: Sequence[str],
    superposition: Superposition,
) -> torch.Tensor:
    """Expectation values of the normalised superposition, its states made and measured one after the other."""
    check_superposition(circuit, angles, superposition)
    state = simulator.state(circuit, angles)
    order = torch.tensor(reversal(circuit.qubits), device=state.device)
    alpha, beta = superposition.coefficients
    mixed = alpha * state + beta * state[:, order] + superposition.constant
    return measured(simulator, mixed, paulis)


def measured(simulator: Simulator, states: torch.Tensor, paulis: Sequence[str]) -> torch.Tensor:
    """Expectation values (batch, len(paulis)) of states (batch, 2**n), complex, after normalising them."""
    norm = torch.linalg.vector_norm(torch.view_as_real(states).flatten(1), dim=1, keepdim=True)
    nothing = Angles(norm[:, :0], norm.new_empty(0))
    qubits = states.shape[1].bit_length() - 1
    return simulator.expval(Circuit(qubits, ()), nothing, paulis, states / (norm + TINY))
