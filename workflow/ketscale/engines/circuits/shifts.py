"""Parameter-shift rules, and circuits in which each use of an angle can be shifted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit, Column

# The terms of an angle's rule.
Rule = tuple[tuple[float, float], ...]

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


def _rule(gate: str) -> Rule:
    """The rule of a gate's angle, by the gate's name."""
    # Without a control, and for phases with any controls, there are two eigenvalues.
    return FOUR_TERMS if gate.startswith("C") and "PhaseShift" not in gate else TWO_TERMS


@lru_cache(maxsize=256)
def separated(circuit: Circuit) -> tuple[Circuit, tuple[Column, ...], tuple[Rule, ...]]:
    """The circuit with an input for each use of an angle; what each use is of, and its parameter-shift rule."""
    uses, rules, gates = [], [], []
    for gate in circuit.gates:
        columns = []
        for column in gate.columns:
            if column.kind != "constant":
                uses.append(column)
                rules.append(_rule(gate.name))
                column = Column("input", len(uses) - 1)
            columns.append(column)
        gates.append(replace(gate, columns=tuple(columns)))
    return Circuit(circuit.qubits, tuple(gates)), tuple(uses), tuple(rules)


def gathered(uses: Sequence[Column], angles: Angles) -> torch.Tensor:
    """The angle of each use, (batch, uses)."""
    inputs, weights = angles
    every = torch.cat([inputs, weights.expand(len(inputs), -1)], dim=1)
    return every[:, [use.index if use.kind == "input" else inputs.shape[1] + use.index for use in uses]]
