"""Records a simulator's forward and backward passes as spans of a sampled step."""

from __future__ import annotations

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import CircuitPullBack, Simulator, stacks, vjp
from ketscale.engines.circuits.wrapper import Evaluate, Wrapper
from ketscale.measure.spans import active, span, with_backward_span


class Spanned(Wrapper):
    """`simulator`, with its time recorded as the spans `circuit.forward` and `circuit.backward`."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(simulator)
        self.stacks = stacks(simulator)

    def direct(self) -> bool:
        """Whether no step is sampled."""
        return active() is None

    def through(self, evaluate: Evaluate, angles: Angles, *others: torch.Tensor) -> torch.Tensor:
        """See `Wrapper.through`."""

        def forward(inputs: torch.Tensor, weights: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            with span("circuit.forward"):
                return evaluate(Angles(inputs, weights), *rest)

        return with_backward_span("circuit.backward", forward, *angles, *others)

    def vjp(
        self, circuit: Circuit, angles: Angles, paulis: tuple[str, ...]
    ) -> tuple[torch.Tensor, CircuitPullBack] | None:
        """See `simulator.vjp`."""
        with span("circuit.forward"):
            found = vjp(self.simulator, circuit, angles, paulis)
        if found is None or active() is None:
            return found
        values, back = found

        def counted(cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with span("circuit.backward"):
                return back(cotangent)

        return values, counted
