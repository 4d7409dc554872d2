"""Parameter-shift rules."""

from __future__ import annotations

import math

# (coefficient, shift) pairs: f'(x) = sum of coefficient * f(x + shift), exact for gates whose generator
# has two eigenvalues one apart, and for controlled rotations, which have a third (Wierichs et al.,
# Quantum 6, 677 (2022), eq. 5; Anselmetti et al., New J. Phys. 23, 113010 (2021), eq. 13).
TWO_TERMS = ((0.5, math.pi / 2), (-0.5, -math.pi / 2))
_NEAR, _FAR = (2**0.5 + 1) / (4 * 2**0.5), (2**0.5 - 1) / (4 * 2**0.5)
FOUR_TERMS = (
    (_NEAR, math.pi / 2),
    (-_NEAR, -math.pi / 2),
    (-_FAR, 3 * math.pi / 2),
    (_FAR, -3 * math.pi / 2),
)


def rule(gate: str) -> tuple[tuple[float, float], ...]:
    """The rule of a gate's angle, by the gate's name."""
    # Without a control, and for phases with any controls, there are two eigenvalues.
    return FOUR_TERMS if gate.startswith("C") and "PhaseShift" not in gate else TWO_TERMS
