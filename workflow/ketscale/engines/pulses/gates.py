"""Target unitaries of computational states, on the CPU.

Entry (i, j) is <i|U|j>, so that state j becomes row j of `U.T`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch

from ketscale.errors import UserError
from ketscale.shapes import Complex128


def x_gate(qubits: int) -> Complex128[torch.Tensor, "{2**qubits} {2**qubits}"]:
    """X on each qubit, complex (2**n, 2**n)."""
    return torch.eye(2**qubits, dtype=torch.complex128).flip(0)


def hadamard_gate(qubits: int) -> Complex128[torch.Tensor, "{2**qubits} {2**qubits}"]:
    """The Hadamard gate on each qubit, complex (2**n, 2**n)."""
    one = torch.tensor([[1, 1], [1, -1]], dtype=torch.complex128) / math.sqrt(2)
    return reduce(torch.kron, [one] * qubits)


def cnot_gate(
    qubits: int, pairs: Sequence[tuple[int, int]]
) -> Complex128[torch.Tensor, "{2**qubits} {2**qubits}"]:
    """A CNOT on each pair (control, target), in their order, complex (2**n, 2**n).

    Raises:
        UserError: a qubit does not exist, or a pair names one twice.
    """
    check_pairs(qubits, pairs)
    state = torch.arange(2**qubits)
    for control, target in pairs:
        state = state ^ ((state >> (qubits - 1 - control) & 1) << (qubits - 1 - target))
    gate = torch.zeros(2**qubits, 2**qubits, dtype=torch.complex128)
    gate[state, torch.arange(2**qubits)] = 1
    return gate


def check_pairs(qubits: int, pairs: Sequence[tuple[int, int]]) -> None:
    """Raise UserError unless each pair names two different qubits."""
    for control, target in pairs:
        if control == target or not {control, target} <= set(range(qubits)):
            raise UserError(f"pairs: {control}, {target} are not two different qubits from 0 to {qubits - 1}")
