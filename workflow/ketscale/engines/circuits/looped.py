"""A batch evaluated sample by sample, to measure the cost of loops over samples in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.superposition import Superposition, superposed

Row = Callable[[Angles, "torch.Tensor | None"], torch.Tensor]


class Looped:
    """`simulator`, called once for each sample."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        return _each(lambda a, s: self.simulator.state(circuit, a, s), angles, initial)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        return _each(lambda a, s: self.simulator.expval(circuit, a, paulis, s), angles, initial)

    def superposed(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], superposition: Superposition
    ) -> torch.Tensor:
        """See `superposition.superposed`."""
        return _each(lambda a, _: superposed(self.simulator, circuit, a, paulis, superposition), angles, None)


def _each(evaluate: Row, angles: Angles, initial: torch.Tensor | None) -> torch.Tensor:
    if len(angles.inputs) < 2 or (
        initial is not None and initial.ndim == 2 and len(initial) != len(angles.inputs)
    ):
        return evaluate(angles, initial)  # no rows, one row, or a mistake that the simulator reports
    rows = angles.inputs.split(1)
    starts = [initial] * len(rows) if initial is None or initial.ndim == 1 else initial.split(1)
    return torch.cat([evaluate(Angles(i, angles.weights), s) for i, s in zip(rows, starts, strict=True)])
