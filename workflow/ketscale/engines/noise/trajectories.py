"""Quantum trajectories: noisy circuits of more qubits than density matrices allow, as means over random pure states.

A *trajectory* draws an error for each channel. A Pauli error is no gate of its own: it is carried to the end of the circuit,
where it turns the signs of measured words; on its way through rotations it turns the signs of their angles (a Pauli frame:
Knill, Nature 434, 39 (2005)). So a circuit with Pauli channels takes as long as an ideal one with as many samples. Damping needs
the state: a jump comes with its probability in this state (Dalibard, Castin and Molmer, PRL 68, 580 (1992)).

Gradients are unbiased: each draw's probability p is divided by the constant that it was drawn with, q, and these quotients, which
multiply the values, have the derivatives of p. Where a gradient by a strength is wanted, q is mixed with some even odds, so that
errors that are improbable, or impossible at a strength of 0, still give their share of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

from ketscale.engines import randomness
from ketscale.engines.circuits.checks import check_request, no_rows, refuse_transforms
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.shots import drawing_for
from ketscale.engines.circuits.simulator import Simulator, stacks
from ketscale.engines.circuits.transforms import side_by_side
from ketscale.engines.derivatives import uncompiled
from ketscale.engines.noise.density import check_strengths
from ketscale.engines.noise.pauli_frame import Plan, Rows, plan_of
from ketscale.errors import UserError

TRAJECTORIES = randomness.RandomStream("trajectories")
# Bytes of all states that a gradient keeps; what would take more is computed again, some trajectories at a time.
MOST_KEPT = 2**29
# So many of each row autograd keeps for each part of a circuit.
STATES_OF_PART = 4


class Estimate(NamedTuple):
    """A mean over trajectories, and its standard error."""

    mean: torch.Tensor
    error: torch.Tensor


class Trajectories:
    """`simulator`, whose results for circuits with channels are means over `number` trajectories for each sample.

    Torch's generator decides the draws; in `ketscale train` the run's seed, the step and the sample do. First derivatives are
    unbiased; there are no others.

    Raises:
        UserError: the number is no whole number from 2.
    """

    def __init__(self, simulator: Simulator, number: int) -> None:
        if isinstance(number, bool) or not isinstance(number, int) or number < 2:
            raise UserError(f"trajectories must be a whole number from 2, not {number!r}")
        self.simulator, self.number = simulator, number

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """The state of a circuit without channels."""
        check_request(circuit, angles, initial)
        return self.simulator.state(circuit, angles, initial)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Means of expectation values, see `Simulator.expval`."""
        if not circuit.noisy:
            return self.simulator.expval(circuit, angles, paulis, initial)
        return self._each(circuit, angles, tuple(paulis), initial)[0].mean(1)

    def estimate(
        self, circuit: Circuit, angles: tuple[torch.Tensor, torch.Tensor], paulis: Sequence[str]
    ) -> Estimate:
        """Expectation values (batch, words) at inputs (batch, columns) and weights (columns,), and their standard errors."""
        return _estimate(self._each(circuit, Angles(*angles), tuple(paulis))[0].detach(), 1)

    def gradients(
        self,
        circuit: Circuit,
        angles: tuple[torch.Tensor, torch.Tensor],
        paulis: Sequence[str],
        cotangent: torch.Tensor,
    ) -> tuple[Estimate, Estimate]:
        """The gradients by inputs (batch, columns) and weights (columns,) for a cotangent (batch, words), with standard errors."""
        with torch.enable_grad():
            values, own = self._each(circuit, Angles(*angles), tuple(paulis), apart=True)
            total = (values * cotangent[:, None]).sum()
            by_inputs, by_weights = torch.autograd.grad(total, own, materialize_grads=True)
        return _estimate(by_inputs, 1), _estimate(by_weights, 0)

    @uncompiled  # each call draws anew
    def _each(
        self, circuit: Circuit, angles: Angles, words: tuple[str, ...], initial: torch.Tensor | None = None,
        apart: bool = False,
    ) -> tuple[torch.Tensor, Angles]:  # fmt: skip
        """Each trajectory's values (batch, trajectories, words), and its angles, as `angles` but (..., trajectories, columns).

        apart: whether each trajectory's own angles require gradients, in place of the given ones.
        """
        check_request(circuit, angles, initial, words, channels=True)
        refuse_transforms("a simulator with trajectories", *angles)
        if initial is not None:
            raise UserError("with noise circuits begin with |0...0>: leave out the initial state")
        check_strengths(circuit, side_by_side(angles.inputs[:, : circuit.inputs], angles.weights).detach())
        plan, batch = plan_of(circuit, words), len(angles.inputs)
        if len(plan.parts) > 1 and not angles.inputs.is_cpu:
            raise UserError("trajectories with damping are computed on the CPU: use Pauli channels on a GPU")
        own = Angles(
            angles.inputs[:, None].expand(-1, self.number, -1), angles.weights.expand(self.number, -1)
        )
        if apart:
            own = Angles(*(each.detach().contiguous().requires_grad_() for each in own))
        if batch == 0:
            return no_rows(own, None, len(words), angles.inputs.dtype)[:, None], own
        drawing = drawing_for(angles)
        key = TRAJECTORIES.key(drawing.seed, drawing.step, drawing.call)
        uniform = randomness.uniform(key, drawing.ids, self.number * plan.draws)
        uniform = uniform.unflatten(1, (self.number, plan.draws))
        states = STATES_OF_PART * (len(plan.parts) - 1)
        if not stacks(self.simulator):  # but for ours, autograd keeps a state of each gate
            states += sum(len(part.gates) for part, _ in plan.parts)
        at_once = max(1, MOST_KEPT // max(1, 16 * 2**circuit.qubits * batch * states))
        some = partial(_some, self.simulator, plan)
        if at_once >= self.number:
            return some(*own, uniform), own
        pieces = zip(
            own.inputs.split(at_once, 1), own.weights.split(at_once), uniform.split(at_once, 1), strict=True
        )
        return torch.cat([checkpoint(some, *each, use_reentrant=False) for each in pieces], 1), own


def _estimate(each: torch.Tensor, axis: int) -> Estimate:
    mean = each.mean(axis, keepdim=True)
    error = ((each - mean).square().sum(axis) / (each.shape[axis] * (each.shape[axis] - 1))).sqrt()
    return Estimate(mean.squeeze(axis), error)


def _some(
    simulator: Simulator,
    plan: Plan,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    uniform: torch.Tensor,
) -> torch.Tensor:
    """Values (batch, trajectories, words) of inputs (batch, trajectories, columns), weights (trajectories, columns) and draws."""
    shape = inputs.shape[:2]
    rows = Rows(
        inputs.flatten(0, 1),
        weights.expand(*shape, -1).flatten(0, 1),
        uniform.flatten(0, 1),
        plan.parts[0][1].qubits,
    )
    state: torch.Tensor | None = None
    nothing = inputs.new_empty(0)
    for part, circuit in plan.parts[:-1]:
        state = rows.damp(simulator.state(circuit, Angles(rows.through(part), nothing), state))
    part, circuit = plan.parts[-1]
    values = simulator.expval(circuit, Angles(rows.through(part), nothing), plan.words, state)
    values = values * torch.stack([rows.sign(word, range(len(word))) for word in plan.words], 1)
    for columns, without in plan.readouts:
        zero_as_one, one_as_zero = (rows.number(column)[:, None] for column in columns)
        read = (1 - zero_as_one - one_as_zero) * values + (one_as_zero - zero_as_one) * values[:, without]
        mixed = [place != number for number, place in enumerate(without)]
        values = torch.where(torch.tensor(mixed, device=values.device), read, values)
    if rows.quotient is not None:
        values = values * rows.quotient[:, None]
    if plan.readouts:
        values = values[:, plan.asked]
    return values.unflatten(0, shape)
