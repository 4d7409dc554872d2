"""Turns rows of numbers into a circuit's angles."""

from __future__ import annotations

import torch
from torch import nn


class AngleHead(nn.Module):
    """(rows, P) -> (rows, P) angles in radians: sigmoid(x) * turn plus P learned offsets.

    x: rows that have passed `linear`, a layer (P, P) that the caller joins with the one before it.
    """

    def __init__(self, width: int, turn: float, offsets: torch.Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.offsets = nn.Parameter(offsets)
        self.turn = turn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The angles."""
        return torch.add(self.offsets, torch.sigmoid(x), alpha=self.turn)
