"""`mlp`: the classical control of `vqc`, of the same shape and size, without the circuit."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.problems.images.vqc import classifier, head
from ketscale.problems.shapes import check_inputs


class MLP(nn.Module):
    """Features (batch, inputs) -> head of `width` -> tanh(W .) in place of the circuit -> logits (batch, outputs).

    W is width x width without bias. Like the circuit's <Z> values its result is in (-1, 1). At width 4 it has 16
    weights and the 3-layer circuit has 12, so the models have 70,190 and 70,186 trainable parameters.

    Raises:
        UserError: when called, the inputs have another shape.
    """

    def __init__(self, inputs: int = 512, outputs: int = 10, dropout: float = 0.2, width: int = 4) -> None:
        super().__init__()
        self.inputs = inputs
        self.head = head(inputs, width, dropout)
        self.mixer = nn.Linear(width, width, bias=False)
        self.classifier = classifier(width, outputs, dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, outputs) of features (batch, inputs)."""
        check_inputs(self, x, self.inputs)
        return self.classifier(torch.tanh(self.mixer(self.head(x))))
