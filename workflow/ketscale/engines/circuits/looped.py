"""A batch evaluated sample by sample, to measure the cost of loops over samples in Python."""

from __future__ import annotations

import torch

from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.wrapper import Evaluate, Wrapper


class Looped(Wrapper):
    """`simulator`, called once for each sample."""

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
