"""`mlp`: the classical control of `vqc`, of the same shape and size, without the circuit."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.problems.images.vqc import classifier, head


class MLP(nn.Module):
    """Features (batch, inputs) -> head of `width` -> tanh(W .) in place of the circuit -> logits (batch, outputs).

    W is width x width without bias: like the circuit's <Z> values the result lies in (-1, 1), and at width 4
    it has 16 weights where the 3-layer circuit has 12, so 70,190 trainable parameters to 70,186.
    """

    def __init__(self, width: int = 4, inputs: int = 512, outputs: int = 10, dropout: float = 0.2) -> None:
        super().__init__()
        self.head = head(inputs, width, dropout)
        self.mixer = nn.Linear(width, width, bias=False)
        self.classifier = classifier(width, outputs, dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, outputs) of features (batch, inputs)."""
        return self.classifier(torch.tanh(self.mixer(self.head(x))))
