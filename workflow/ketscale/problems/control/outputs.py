"""The outputs of the models of `control`: rows that ranks gather, and the two parts of them."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch


class Outputs(NamedTuple):
    """What a model makes of tasks.

    overlaps: (n, columns), after each number of adaptation steps or of each start. pulses: the tasks' final controls
    (n, segments, controls).
    """

    overlaps: torch.Tensor
    pulses: torch.Tensor

    @property
    def rows(self) -> torch.Tensor:
        """One row for each task, (n, columns + segments * controls)."""
        return torch.cat([self.overlaps, self.pulses.flatten(-2)], -1)

    @classmethod
    def of(cls, rows: torch.Tensor, shape: tuple[int, ...]) -> Outputs:
        """The parts of rows whose pulses have this shape (segments, controls)."""
        width = prod(shape)
        return cls(rows[:, :-width], rows[:, -width:].unflatten(1, shape))
