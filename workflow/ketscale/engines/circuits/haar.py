"""What random unitaries and states, drawn by Haar's measure, have of the measures in `trainability`. Imports nothing heavy."""

from __future__ import annotations

import math


def gradient(qubits: int) -> float:
    """The mean square of the derivative of a Pauli word by the angle of a Pauli rotation between random unitaries.

    N^2 / (2 (N^2 - 1) (N + 1)) with N = 2^qubits: Haar's averages over both, which McClean et al. take for a 2-design.
    """
    size = 2.0**qubits
    return size**2 / (2 * (size**2 - 1) * (size + 1))


def frame_potential(qubits: int, t: int) -> float:
    """The frame potential of Haar-random states, the least that there is: t! (N - 1)! / (t + N - 1)!, N = 2^qubits."""
    size = 2**qubits
    return math.factorial(t) / math.prod(range(size, size + t))
