"""Unitaries of one and two qubits to aim at, by name."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import torch

from ketscale.config import suggestion
from ketscale.errors import UserError

_HALF = 1 / sqrt(2)
# In the order of bits, the first qubit's the slower; entry (i, j) is <i|U|j>.
_GATES = {
    "x": [[0, 1], [1, 0]],
    "y": [[0, -1j], [1j, 0]],
    "z": [[1, 0], [0, -1]],
    "h": [[_HALF, _HALF], [_HALF, -_HALF]],
    "s": [[1, 0], [0, 1j]],
    "t": [[1, 0], [0, np.exp(1j * pi / 4)]],
    "sqrt_x": [[0.5 + 0.5j, 0.5 - 0.5j], [0.5 - 0.5j, 0.5 + 0.5j]],
    "cz": np.diag([1, 1, 1, -1]),
    "cnot": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
    "swap": [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]],
    "iswap": [[1, 0, 0, 0], [0, 0, 1j, 0], [0, 1j, 0, 0], [0, 0, 0, 1]],
    "sqrt_iswap": [[1, 0, 0, 0], [0, _HALF, 1j * _HALF, 0], [0, 1j * _HALF, _HALF, 0], [0, 0, 0, 1]],
}


def gate(name: str) -> torch.Tensor:
    """A gate on one qubit, complex128 (2, 2), or on two, (4, 4): x, y, z, h, s, t, sqrt_x; cz, cnot, swap, iswap, sqrt_iswap.

    Others are matrices of one's own; `torch.kron` puts gates side by side.

    Raises:
        UserError: there is no such gate.

    Example:
        >>> gate("cz").diagonal().real
        tensor([ 1.,  1.,  1., -1.], dtype=torch.float64)
    """
    if name not in _GATES:
        raise UserError(f"gate: no gate is called {name}{suggestion(name, list(_GATES))}")
    return torch.tensor(np.array(_GATES[name]), dtype=torch.complex128)
