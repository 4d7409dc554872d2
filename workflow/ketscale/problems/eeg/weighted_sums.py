"""Weighted sums: over the steps of a series, and over the branches of a model."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.problems.complex_weights import ComplexWeights


class ComplexSum(nn.Module):
    """Steps (batch, steps, m) -> modulus (batch, m) of their sum with weights w / sum |w|.

    The weights are complex, real and imaginary parts uniform in [0, 1) at the start.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.weights = ComplexWeights(torch.rand(steps), torch.rand(steps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The modulus of the weighted sum."""
        pairs = self.weights.pairs
        scaled = pairs / torch.linalg.vector_norm(pairs, dim=1).sum()
        # One real product for both parts: (2, steps) times (batch, steps, m).
        parts = scaled.T @ x
        return torch.linalg.vector_norm(parts, dim=1)


class SoftmaxSum(nn.Module):
    """Steps (batch, steps, m) -> their mean (batch, m) with softmax weights, equal at the start."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((steps,), 1 / steps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The weighted mean."""
        return self.weights.softmax(0) @ x


class Mixture(nn.Module):
    """Three branches' expectation values, each through its own Linear(m, m), mixed by |w| / sum |w|, then Linear(m, m).

    The weights are real, 1 at the start.
    """

    def __init__(self, values: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(values, values) for _ in range(3))
        self.weights = nn.Parameter(torch.ones(3))
        self.out = nn.Linear(values, values)

    def forward(self, *branches: torch.Tensor) -> torch.Tensor:
        """(rows, m) from three of (rows, m), or (1, m) where a branch does not depend on the row."""
        weights = self.weights.abs() / self.weights.abs().sum()
        mixed = sum(
            weight * linear(branch)
            for weight, linear, branch in zip(weights, self.branches, branches, strict=True)
        )
        return self.out(mixed)
