"""Counts a simulator's forward and backward passes as spans of the step that is being sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ketscale.circuits import Angles, Circuit
from ketscale.simulators.base import Simulator
from ketscale.spans import active, span, with_backward_span


class Spanned:
    """`simulator`, its time counted as `circuit.forward` and `circuit.backward`."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """As the simulator's."""
        if active() is None:
            return self.simulator.state(circuit, angles, initial)
        return _counted(lambda a, i: self.simulator.state(circuit, a, i), angles, initial)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As the simulator's."""
        if active() is None:
            return self.simulator.expval(circuit, angles, paulis, initial)
        return _counted(lambda a, i: self.simulator.expval(circuit, a, paulis, i), angles, initial)


def _counted(
    evaluate: Callable[[Angles, torch.Tensor | None], torch.Tensor],
    angles: Angles,
    initial: torch.Tensor | None,
) -> torch.Tensor:
    def forward(inputs: torch.Tensor, weights: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        with span("circuit.forward"):
            return evaluate(Angles(inputs, weights), rest[0] if rest else None)

    return with_backward_span("circuit.backward", forward, *angles, *(() if initial is None else (initial,)))
