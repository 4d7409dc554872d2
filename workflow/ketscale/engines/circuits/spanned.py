"""Records a simulator's forward and backward passes as spans of a sampled step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import CircuitPullBack, Simulator, stacks, vjp
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.measure.spans import active, span, with_backward_span


class Spanned:
    """`simulator`, with its time recorded as the spans `circuit.forward` and `circuit.backward`."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.stacks = stacks(simulator)

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        if active() is None:
            return self.simulator.state(circuit, angles, initial)
        return _counted(lambda a, i: self.simulator.state(circuit, a, *i), angles, *_given(initial))

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        if active() is None:
            return self.simulator.expval(circuit, angles, paulis, initial)
        return _counted(lambda a, i: self.simulator.expval(circuit, a, paulis, *i), angles, *_given(initial))

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

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """See `superposition.superposed`."""
        if active() is None:
            return superposed(self.simulator, circuit, angles, paulis, superposition)
        return _counted(
            lambda a, s: superposed(self.simulator, circuit, a, paulis, Superposition(*s)),
            angles,
            *superposition,
        )


def _given(initial: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    return () if initial is None else (initial,)


def _counted(
    evaluate: Callable[[Angles, tuple[torch.Tensor, ...]], torch.Tensor],
    angles: Angles,
    *others: torch.Tensor,
) -> torch.Tensor:
    def forward(inputs: torch.Tensor, weights: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        with span("circuit.forward"):
            return evaluate(Angles(inputs, weights), rest)

    return with_backward_span("circuit.backward", forward, *angles, *others)
