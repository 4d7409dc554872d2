"""Simulators in front of another one, which see every request to it in one place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator, probabilities
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

    def _through(self, evaluate: Evaluate, angles: Angles, *others: torch.Tensor | None) -> torch.Tensor:
        return self.through(evaluate, angles, *(other for other in others if other is not None))

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        return self._through(lambda own, *given: self.simulator.state(circuit, own, *given), angles, initial)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        return self._through(
            lambda own, *given: self.simulator.expval(circuit, own, paulis, *given), angles, initial
        )

    def probs(
        self, circuit: Circuit, angles: Angles, wires: Sequence[int], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `probabilities`."""
        return self._through(
            lambda own, *given: probabilities(self.simulator, circuit, own, wires, *given), angles, initial
        )

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """See `superposition.superposed`."""
        return self._through(
            lambda own, *given: superposed(self.simulator, circuit, own, paulis, Superposition(*given)),
            angles,
            *superposition,
        )


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
