"""`majority`: what is most frequent in training, whatever the sample is."""

from __future__ import annotations

import torch

from ketscale.problems.fitted import Fitted, Samples


class Majority(Fitted):
    """The same outputs for all samples x (batch, ...): how often each class is trained, or the mean, (batch, outputs)."""

    usual: torch.Tensor

    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        self.register_buffer("usual", torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs (batch, outputs), of which the largest is that of the most frequent class."""
        return self.usual.expand(len(x), -1)

    def fit(self, train: Samples, validation: Samples | None) -> None:
        """Count classes, int64 (n,), or average numbers (n, outputs)."""
        targets, usual = train.targets, self.usual
        counts = targets.bincount(minlength=len(usual)) if targets.ndim == 1 else targets.mean(0)
        self.usual = counts.to(usual)
