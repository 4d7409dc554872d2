"""Weighted sums: over the steps of a series, and over the branches of a model."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.layers.complex_weights import ComplexWeights


class ComplexSum(nn.Module):
    """Steps (batch, steps, m) -> modulus (batch, m) of their sum with weights w / sum |w|.

    The weights w are complex; their real and imaginary parts start uniform in [0, 1).

    last: a linear layer of every step, if there is one. It passes the sum instead, which is the same.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.weights = ComplexWeights(torch.rand(steps), torch.rand(steps))

    def forward(self, x: torch.Tensor, last: nn.Linear | None = None) -> torch.Tensor:
        """The modulus of the weighted sum."""
        pairs = self.weights.pairs
        scaled = pairs / torch.linalg.vector_norm(pairs, dim=1).sum()
        # One real product for both parts, (2, steps) times (steps, m) for each sample; `@` would copy x.
        parts = scaled.T.expand(len(x), -1, -1).bmm(x)
        if last is not None:
            # The weights of the steps do not add up to 1, so neither do those of the biases.
            parts = nn.functional.linear(parts, last.weight) + scaled.sum(0)[:, None] * last.bias
        # Over parts that lie apart torch takes twenty times as long.
        return torch.linalg.vector_norm(parts.transpose(1, 2).contiguous(), dim=2)


class SoftmaxSum(nn.Module):
    """Steps (batch, steps, m) -> their mean (batch, m) with softmax weights, which start equal."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((steps,), 1 / steps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The weighted mean."""
        return self.weights.softmax(0) @ x


class Mixture(nn.Module):
    """Mixes three branches' expectation values with weights |w| / sum |w|, between linear layers.

    Each branch has a Linear(m, m) of its own before the mixing; one more follows it. The w are real and start at 1.
    """

    def __init__(self, values: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(values, values) for _ in range(3))
        self.weights = nn.Parameter(torch.ones(3))
        self.out = nn.Linear(values, values)

    def forward(self, *branches: torch.Tensor) -> torch.Tensor:
        """(rows, m) from three branches (rows, m); a branch that does not depend on the row may be (1, m)."""
        weights = self.weights.abs() / self.weights.abs().sum()
        mixed = sum(
            weight * linear(branch)
            for weight, linear, branch in zip(weights, self.branches, branches, strict=True)
        )
        return self.out(mixed)
