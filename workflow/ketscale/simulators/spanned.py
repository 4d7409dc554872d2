"""The wrapper of every simulator that has a usual name: spans of sampled steps, and torch's compilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import CircuitPullBack, Simulator, plain_probabilities, stacks, vjp
from ketscale.engines.circuits.wrapper import Evaluate, Wrapper
from ketscale.simulators import operators
from ketscale.spans import active, span, with_backward_span

if TYPE_CHECKING:
    from ketscale.config.circuits import CircuitSimulator


class Spanned(Wrapper):
    """`simulator`, with its time recorded as the spans `circuit.forward` and `circuit.backward`.

    settings: from which it was built; by them torch's compilers take it as an operator.
    """

    def __init__(self, simulator: Simulator, settings: CircuitSimulator | None = None) -> None:
        super().__init__(simulator)
        self.settings = settings
        self.stacks = stacks(simulator)
        self.replays: bool = getattr(simulator, "replays", False)

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        if self.settings is not None and torch.compiler.is_compiling():
            return operators.evaluate(self.settings, circuit, angles, (), initial)
        return super().state(circuit, angles, initial)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        if self.settings is not None and torch.compiler.is_compiling():
            return operators.evaluate(self.settings, circuit, angles, tuple(paulis), initial)
        return super().expval(circuit, angles, paulis, initial)

    def probs(
        self, circuit: Circuit, angles: Angles, wires: Sequence[int], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `probabilities`; torch's compilers take those of a state, or of expectation values where there is noise."""
        if self.settings is not None and torch.compiler.is_compiling():
            noisy = circuit.noisy or self.settings.noise is not None
            return plain_probabilities(self, circuit, angles, wires, initial, noisy)
        return super().probs(circuit, angles, wires, initial)

    def through(self, evaluate: Evaluate, angles: Angles, *others: torch.Tensor) -> torch.Tensor:
        """See `Wrapper.through`."""
        if active() is None:  # no step is sampled
            return evaluate(angles, *others)

        def forward(inputs: torch.Tensor, weights: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            with span("circuit.forward"):
                return evaluate(Angles(inputs, weights), *rest)

        return with_backward_span("circuit.backward", forward, *angles, *others)

    def vjp(
        self, circuit: Circuit, angles: Angles, paulis: tuple[str, ...]
    ) -> tuple[torch.Tensor, CircuitPullBack] | None:
        """See `simulator.vjp`."""
        with span("circuit.forward"):
            forward = vjp(self.simulator, circuit, angles, paulis)
        if forward is None or active() is None:
            return forward
        values, back = forward

        def counted(cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with span("circuit.backward"):
                return back(cotangent)

        return values, counted
