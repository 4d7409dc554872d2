"""Ways to evaluate the probability P of the superposition transformer, and to differentiate its loss.

P is linear in W (x) V before the modulus, so the sum over a sentence's transitions can be done beforehand. With T of
`Transitions.closed`, 256 numbers of a sentence that do not depend on the angles, P = |sum_kl T_kl (W (x) V)_kl|^2,
whatever the number of transitions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import nn

from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.derivatives import first_derivatives_only
from ketscale.engines.members import batched
from ketscale.problems.sentences.transformer import (
    PAIR,
    TINY,
    Transitions,
    loss,
    sentence_circuit,
    sentence_unitary,
)
from ketscale.spans import active, span, with_backward_span


class Likelihood(nn.Module, ABC):
    """P of sentences, and differentiable losses.

    layers: of V and of W. tasks: (rank, ranks) that share the (angle, sign, sentence) tasks of parameter-shift; (0, 1)
    if one rank does all.
    """

    tasks: tuple[int, int] = (0, 1)

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers

    def unitary(self, weights: torch.Tensor) -> torch.Tensor:
        """W (x) V, complex (..., 16, 16), at weights (..., angles) in radians."""
        return batched(lambda weights: sentence_unitary(weights, self.layers), weights)

    @abstractmethod
    def probabilities(self, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """P (sentences,) of the sentences with these indices, int64 (sentences,), at weights (angles,) in radians."""

    def evaluated(self, weights: torch.Tensor, sentences: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`probabilities` and `unitary`."""
        return self.probabilities(weights, sentences), self.unitary(weights)

    def losses(self, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """The loss of each sentence (sentences,), differentiable in the weights.

        If ranks share tasks, every rank has all sentences. It gives the losses of its share of the sentences and
        zero for the others, so that losses and gradients add up over the ranks.
        """

        def forward(weights: torch.Tensor) -> torch.Tensor:
            with span("circuit.forward"):
                return loss(self.probabilities(weights, sentences))

        return (
            forward(weights) if active() is None else with_backward_span("circuit.backward", forward, weights)
        )


class ClosedForm(Likelihood):
    """P by the closed form, differentiated by torch."""

    def __init__(self, layers: int, transitions: Transitions) -> None:
        super().__init__(layers)
        self.register_buffer("closed", transitions.closed().flatten(1), persistent=False)

    def probabilities(self, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """P (..., sentences), for weights (..., angles)."""
        return self.evaluated(weights, sentences)[0]

    def evaluated(self, weights: torch.Tensor, sentences: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Likelihood.evaluated`."""
        unitary = self.unitary(weights)
        return batched(self._probabilities, unitary, sentences), unitary

    def _probabilities(self, unitary: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """P (..., sentences) for unitaries (..., 16, 16) and sentences (..., sentences)."""
        entries = torch.view_as_real(unitary.flatten(-2))
        return (self.get_buffer("closed")[sentences] @ entries).square().sum(-1)


class Simulated(ClosedForm):
    """The closed form with W (x) V from a simulator: one circuit on the 16 basis states for all sentences."""

    def __init__(self, layers: int, transitions: Transitions, simulator: Simulator) -> None:
        super().__init__(layers, transitions)
        self.simulator = simulator
        self.circuit = sentence_circuit(layers)
        self.register_buffer("basis", torch.eye(PAIR, dtype=torch.complex128), persistent=False)

    def unitary(self, weights: torch.Tensor) -> torch.Tensor:
        """See `Likelihood.unitary`, for weights (angles,)."""
        angles = Angles(weights.new_empty(PAIR, 0), weights)
        columns = self.simulator.state(self.circuit, angles, self.get_buffer("basis"))
        # Row l of the final states is column l of the matrix.
        return columns.to(weights.dtype.to_complex()).mT

    def losses(self, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """The loss of each sentence; the simulator records its own spans."""
        return loss(self.probabilities(weights, sentences))


class Shifts(NamedTuple):
    """Evaluations of parameter-shift, int64 (n,) each: the angle, the sign (1 or -1) of its shift, the sentence."""

    angle: torch.Tensor
    sign: torch.Tensor
    row: torch.Tensor


class Shifted(Likelihood):
    """A likelihood whose gradient comes from parameter-shift of P and the chain rule for the logarithm.

    P has frequency 1 in every angle, so its derivative is (P(+) - P(-)) / 2 with shifts of pi/2 (Schuld et al.,
    arXiv:1811.11184), and the loss's is -(P(+) - P(-)) / (2 (P + 1e-12)). The rule would be wrong for -ln P itself,
    which has all frequencies.
    """

    @abstractmethod
    def shifted(self, weights: torch.Tensor, sentences: torch.Tensor, shifts: Shifts) -> torch.Tensor:
        """P (n,) of sentences[row] with weights[angle] shifted by sign * pi/2; sorted by angle, then sign."""

    def losses(self, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """The losses; their backward pass evaluates this rank's tasks."""
        result: torch.Tensor = _ByShift.apply(weights, sentences, self)
        return result


class ShiftedClosedForm(Shifted):
    """The closed form differentiated by parameter-shift, all shifted angles in one batch."""

    def __init__(self, layers: int, transitions: Transitions) -> None:
        super().__init__(layers)
        self.form = ClosedForm(layers, transitions)

    def probabilities(self, weights: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        """P (sentences,)."""
        return self.form.probabilities(weights, sentences)

    def shifted(self, weights: torch.Tensor, sentences: torch.Tensor, shifts: Shifts) -> torch.Tensor:
        """See `Shifted.shifted`; each shifted set of angles is evaluated once for all sentences."""
        number = 2 * shifts.angle + (shifts.sign < 0)
        first = int(number[0])
        numbers = torch.arange(first, int(number[-1]) + 1, device=weights.device)
        rows = weights.repeat(len(numbers), 1)
        signs = 1.0 - 2.0 * (numbers % 2).to(weights.dtype)
        rows[torch.arange(len(numbers)), numbers // 2] += signs * (math.pi / 2)
        return self.form.probabilities(rows, sentences)[number - first, shifts.row]


class _ByShift(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weights: torch.Tensor, sentences: torch.Tensor, likelihood: Shifted
    ) -> torch.Tensor:
        with span("circuit.forward"):
            probabilities = likelihood.probabilities(weights, sentences)
        ctx.save_for_backward(weights, sentences, probabilities)
        ctx.likelihood = likelihood
        rank, ranks = likelihood.tasks
        losses = loss(probabilities)
        if ranks > 1:
            own = torch.zeros_like(losses)
            own[torch.tensor_split(torch.arange(len(losses)), ranks)[rank]] = 1
            losses = losses * own
        return losses

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("gradient: parameter-shift", "for create_graph=True use gradient: backprop")
        weights, sentences, probabilities = ctx.saved_tensors
        count = 2 * len(weights) * len(sentences)
        with span("circuit.backward"):
            rank, ranks = ctx.likelihood.tasks
            own = torch.tensor_split(torch.arange(count, device=weights.device), ranks)[rank]
            gradient = torch.zeros_like(weights)
            if len(own):
                number, row = own // len(sentences), own % len(sentences)
                shifts = Shifts(number // 2, 1 - 2 * (number % 2), row)
                values = ctx.likelihood.shifted(weights, sentences, shifts)
                factor = -cotangent / (2 * (probabilities + TINY))
                gradient.index_add_(0, shifts.angle, shifts.sign.to(values.dtype) * values * factor[row])
        return gradient, None, None
