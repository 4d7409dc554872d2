"""`majority`: what is most frequent in training, whatever the sample is."""

from __future__ import annotations

from typing import ClassVar

import torch

from ketscale.problems.fitted import Fitted, Samples


class Majority(Fitted):
    """The same outputs for all samples x (batch, ...): logarithms of the classes' counts, or the mean, (batch, outputs)."""

    logits: ClassVar[bool] = True
    usual: torch.Tensor

    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        self.register_buffer("usual", torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs (batch, outputs), the largest for the most frequent class."""
        return self.usual.expand(len(x), -1)

    def fit(self, train: Samples, validation: Samples | None) -> None:
        """Take the logarithms of the counts of classes, int64 (n,), or average numbers (n, outputs)."""
        targets, template = train.targets, self.usual
        if targets.ndim > 1:
            self.usual = targets.mean(0).to(template)
        else:
            counts = targets.bincount(minlength=len(template)).to(template)
            self.usual = counts.clamp(min=torch.finfo(template.dtype).tiny).log()
