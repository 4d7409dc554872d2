"""`mlp`: the classical control of `vqc`, of the same shape and size, without the circuit."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.engines.vjp import VJP, Slots, offered, vjp_of, watched
from ketscale.layers.dense import tanh_vjp
from ketscale.problems.vectors.vqc import classifier, head


class MLP(nn.Module):
    """Features (batch, inputs) -> head of `width` -> tanh(W .) in place of the circuit -> logits (batch, outputs).

    W is width x width without bias. Like the circuit's <Z> values its result is in (-1, 1). At width 4 it has 16
    weights and the 3-layer circuit has 12, so the models have 70,190 and 70,186 trainable parameters.
    """

    def __init__(self, inputs: int = 512, outputs: int = 10, dropout: float = 0.2, width: int = 4) -> None:
        super().__init__()
        self.head = head(inputs, width, dropout)
        self.mixer = nn.Linear(width, width, bias=False)
        self.classifier = classifier(width, outputs, dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, outputs) of features (batch, inputs)."""
        return self.classifier(torch.tanh(self.mixer(self.head(x))))

    @vjp_of(forward)
    def vjp(self, x: torch.Tensor) -> VJP | None:
        """`forward`, see `engines.vjp`; the gradient with respect to the features is not computed."""
        through_head, through_classifier = offered(self.head), offered(self.classifier)
        head = through_head and through_head(x, to_input=False)
        if head is None or through_classifier is None or not self._mixes():
            return None
        weight = self.mixer.weight
        mixed = tanh_vjp(head.value, weight)
        classifier = through_classifier(mixed.value, to_input=True)
        if classifier is None:
            return None

        def back(cotangent: torch.Tensor, slots: Slots) -> None:
            to_mixed = classifier.back(cotangent, slots)
            assert to_mixed is not None
            to_angles = mixed.back(to_mixed, slots)
            assert to_angles is not None
            head.back(to_angles, slots)

        return VJP(classifier.value, back)

    def _mixes(self) -> bool:
        """Whether the mixer is the one that `vjp` knows."""
        plain = type(self.mixer) is nn.Linear and self.mixer.bias is None
        return plain and not watched(self.mixer)
