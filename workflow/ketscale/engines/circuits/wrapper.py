"""Simulators in front of another one, which see every request to it in one place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator, of_state, probabilities
from ketscale.engines.circuits.superposition import Superposition, superposed

# Evaluates the wrapped simulator; its tensors after the angles are the initial state or a superposition.
Evaluate: TypeAlias = Callable[..., torch.Tensor]


class Wrapper(ABC):
    """Hands `state`, `expval`, `probs` and `superposed` on to `simulator`, each through the method `through`."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    @abstractmethod
    def through(self, evaluate: Evaluate, angles: Angles, *others: torch.Tensor) -> torch.Tensor:
        """The result of `evaluate(angles, *others)`.

        others: an initial state, (2**n,) or (batch, 2**n), or a superposition's tensors, which all samples share.
        """

    def direct(self) -> bool:
        """Whether requests need not go through `through` now; asked at each, so that most of them lose no time."""
        return False

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        if self.direct():
            return self.simulator.state(circuit, angles, initial)

        def evaluate(angles: Angles, *initial: torch.Tensor) -> torch.Tensor:
            return self.simulator.state(circuit, angles, *initial)

        return self.through(evaluate, angles, *_given(initial))

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        if self.direct():
            return self.simulator.expval(circuit, angles, paulis, initial)

        def evaluate(angles: Angles, *initial: torch.Tensor) -> torch.Tensor:
            return self.simulator.expval(circuit, angles, paulis, *initial)

        return self.through(evaluate, angles, *_given(initial))

    def probs(
        self, circuit: Circuit, angles: Angles, wires: Sequence[int], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `probabilities`; from a simulator that does not draw them, they are those of this one's state."""
        if not hasattr(self.simulator, "probs"):
            return of_state(self.state(circuit, angles, initial), wires)

        def evaluate(angles: Angles, *initial: torch.Tensor) -> torch.Tensor:
            return probabilities(self.simulator, circuit, angles, wires, *initial)

        return self.through(evaluate, angles, *_given(initial))

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """See `superposition.superposed`."""
        if self.direct():
            return superposed(self.simulator, circuit, angles, paulis, superposition)

        def evaluate(angles: Angles, *superposition: torch.Tensor) -> torch.Tensor:
            return superposed(self.simulator, circuit, angles, paulis, Superposition(*superposition))

        return self.through(evaluate, angles, *superposition)


class Looped(Wrapper):
    """`simulator`, called once for each sample, to measure the cost of loops over samples in Python."""

    def through(self, evaluate: Evaluate, angles: Angles, *others: torch.Tensor) -> torch.Tensor:
        """See `Wrapper.through`."""
        rows = len(angles.inputs)
        if rows < 2 or any(other.ndim == 2 and len(other) != rows for other in others):
            return evaluate(angles, *others)  # no rows, one row, or a mistake that the simulator reports
        samples = (
            evaluate(
                Angles(inputs, angles.weights),
                *(other[row : row + 1] if other.ndim == 2 else other for other in others),
            )
            for row, inputs in enumerate(angles.inputs.split(1))
        )
        return torch.cat(list(samples))


def _given(initial: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    return () if initial is None else (initial,)
