"""Trainable complex numbers, and the parameter count of a model that has them."""

from __future__ import annotations

import torch
from torch import nn


class ComplexWeights(nn.Module):
    """Trainable complex numbers, stored as real pairs (count, 2), since `.to(dtype)` would drop imaginary parts."""

    def __init__(self, real: torch.Tensor, imaginary: torch.Tensor) -> None:
        super().__init__()
        self.pairs = nn.Parameter(torch.stack([real, imaginary], dim=1))

    def forward(self) -> torch.Tensor:
        """The numbers, complex (count,)."""
        return torch.view_as_complex(self.pairs)


def parameter_count(model: nn.Module) -> int:
    """Trainable parameters of a model; a complex number of `ComplexWeights` counts once."""
    complex_pairs = sum(m.pairs.shape[0] for m in model.modules() if isinstance(m, ComplexWeights))
    return sum(p.numel() for p in model.parameters() if p.requires_grad) - complex_pairs
