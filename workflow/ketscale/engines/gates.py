"""Gates by name, or by a matrix. Imports nothing heavy.

A gate's entry (i, j) is <i|U|j> of computational states, in the order of bits, the first qubit's the slowest.
"""

from __future__ import annotations

import cmath
from collections.abc import Sequence
from functools import reduce
from math import pi, sqrt
from typing import TYPE_CHECKING, Any, Literal

from ketscale.errors import UserError
from ketscale.words import suggestion

if TYPE_CHECKING:
    import torch

_HALF = 1 / sqrt(2)
_HADAMARD = [[_HALF, _HALF], [_HALF, -_HALF]]
GATES: dict[str, Sequence[Sequence[complex]]] = {
    "x": [[0, 1], [1, 0]],
    "y": [[0, -1j], [1j, 0]],
    "z": [[1, 0], [0, -1]],
    "h": _HADAMARD,
    "hadamard": _HADAMARD,
    "s": [[1, 0], [0, 1j]],
    "t": [[1, 0], [0, cmath.exp(1j * pi / 4)]],
    "sqrt_x": [[0.5 + 0.5j, 0.5 - 0.5j], [0.5 - 0.5j, 0.5 + 0.5j]],
    "cz": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, -1]],
    "cnot": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
    "swap": [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]],
    "iswap": [[1, 0, 0, 0], [0, 0, 1j, 0], [0, 1j, 0, 0], [0, 0, 0, 1]],
    "sqrt_iswap": [[1, 0, 0, 0], [0, _HALF, 1j * _HALF, 0], [0, 1j * _HALF, _HALF, 0], [0, 0, 0, 1]],
}

# The largest deviation of a target from a unitary, or from norm 1.
UNITARY = 1e-6

if TYPE_CHECKING:
    GateName = str
else:
    GateName = Literal[tuple(GATES)]


def qubits_of(name: str) -> int:
    """How many qubits a gate is for."""
    return (len(GATES[name]) - 1).bit_length()


def gate(given: Any, qubits: int | None = None, pairs: Sequence[tuple[int, int]] = ((0, 1),)) -> torch.Tensor:
    """A gate, complex128: on one qubit (2, 2), on two (4, 4), or of a register (2**n, 2**n).

    given: x, y, z, h (or hadamard), s, t, sqrt_x; cz, cnot, swap, iswap, sqrt_iswap; or a unitary matrix. `torch.kron` puts gates
        side by side.
    qubits: n of the register, on each qubit of which a gate on one acts; None: the gate alone.
    pairs: the qubits, from 0, that a gate on two acts on in a register, the first pair first; of cnot control and target.

    Raises:
        UserError: there is no such gate, it is not a unitary of 2, 4, 8 ... states, it is for another number of qubits, or a
            pair does not exist.

    Example:
        >>> gate("cz").diagonal().real
        tensor([ 1.,  1.,  1., -1.], dtype=torch.float64)
        >>> gate("x", 3).shape
        torch.Size([8, 8])
    """
    import torch

    from ketscale.engines.dynamics.tasks import as_complex
    from ketscale.engines.operators import check_pairs

    if isinstance(given, str):
        if given not in GATES:
            raise UserError(f"gate: no gate is called {given}{suggestion(given, list(GATES))}")
        matrix = torch.tensor(GATES[given], dtype=torch.complex128)
    else:
        matrix = as_complex(given, torch.empty(0, dtype=torch.float64), "gate").clone()
        _check_unitary(matrix)
    if not (qubits is None or (isinstance(qubits, int) and qubits >= 1)):
        raise UserError(f"qubits: must be a whole number from 1, not {qubits}")
    if qubits is None or (len(matrix) == 2**qubits and len(matrix) != 4):
        return matrix
    if len(matrix) == 2:
        return reduce(torch.kron, [matrix] * qubits)
    if len(matrix) != 4:
        raise UserError(f"gate: has {len(matrix)} rows, and {qubits} qubits have {2**qubits} states")
    check_pairs(pairs, qubits)
    register = torch.eye(2**qubits, dtype=torch.complex128).reshape(*[2] * qubits, -1)
    for pair in pairs:
        register = torch.tensordot(matrix.reshape(2, 2, 2, 2), register, ([2, 3], list(pair)))
        register = register.movedim((0, 1), tuple(pair))
    return register.reshape(2**qubits, -1)


def _check_unitary(matrix: torch.Tensor) -> None:
    import torch

    from ketscale.private_torch import transforms_active

    size = len(matrix) if matrix.ndim else 0
    if matrix.shape != (size, size) or size < 2 or size & (size - 1):
        raise UserError(f"gate: must be a matrix of 2, 4, 8 ... states, not {tuple(matrix.shape)}")
    if not transforms_active():
        off = float((matrix @ matrix.mH - torch.eye(size)).detach().abs().max())
        if not off <= UNITARY:
            raise UserError(f"gate: is not unitary (off by {off:.1e})")
