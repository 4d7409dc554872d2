"""Parameter-shift rules, and circuits in which each use of an angle can be shifted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from ketscale.engines.circuits.checks import one_first_derivative
from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.engines.circuits.transforms import side_by_side
from ketscale.errors import UserError

# The terms of an angle's rule; and a term of a circuit's: (use, coefficient, shift).
Rule = tuple[tuple[float, float], ...]
Term = tuple[int, float, float]

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


@lru_cache(maxsize=256)
def separated(circuit: Circuit) -> tuple[Circuit, tuple[Column, ...], tuple[Rule, ...]]:
    """The circuit with an input for each use of an angle; what each use is of, and its parameter-shift rule."""
    uses, rules, gates = [], [], []
    for gate in circuit.gates:
        if gate.is_channel and any(column.kind != "constant" for column in gate.columns):
            raise UserError(
                f"the strength of {gate.name} has no parameter-shift rule: keep it constant, or use gradient 'exact' of shots"
            )
        # Without a control, and for phases with any controls, there are two eigenvalues.
        rule = FOUR_TERMS if gate.name.startswith("C") and "PhaseShift" not in gate.name else TWO_TERMS
        columns = []
        for column in gate.columns:
            if column.kind != "constant":
                uses.append(column)
                rules.append(rule)
                column = Column("input", len(uses) - 1)
            columns.append(column)
        gates.append(replace(gate, columns=tuple(columns)))
    return Circuit(circuit.qubits, tuple(gates)), tuple(uses), tuple(rules)


def gathered(circuit: Circuit, angles: Angles) -> torch.Tensor:
    """The angle of each use, (batch, uses)."""
    first = {"input": 0, "weight": angles.inputs.shape[1]}
    return side_by_side(*angles)[:, [first[use.kind] + use.index for use in separated(circuit)[1]]]


def differentiated_terms(circuit: Circuit, angles: Angles) -> list[Term]:
    """Every term of the rules that the gradients by `angles` need."""
    inputs, weights = angles
    _, uses, rules = separated(circuit)
    return [
        (place, *term)
        for place, (use, rule) in enumerate(zip(uses, rules, strict=True))
        if (inputs if use.kind == "input" else weights).requires_grad
        for term in rule
    ]


class Shifted(torch.autograd.Function):
    """Values that were measured at angles (rows, uses), with the gradient by these that `measured` gives for a cotangent.

    name: of what measures.
    """

    @staticmethod
    def forward(
        ctx: Any,
        angles: torch.Tensor,
        values: torch.Tensor,
        measured: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        name: str,
    ) -> torch.Tensor:
        ctx.measured, ctx.name = measured, name
        ctx.save_for_backward(angles)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        one_first_derivative(ctx.name, cotangent)
        (angles,) = ctx.saved_tensors
        return ctx.measured(angles, cotangent), None, None, None
