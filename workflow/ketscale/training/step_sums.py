"""What a training step gives."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class StepSums:
    """What a rank knows about a step once its gradients are in the parameters.

    Attributes:
        step: the number of the step.
        count: the number of samples in the global batch.
        samples: how many of them this rank had.
        sums: the problem's sums over this rank's samples.
        penalty: the problem's penalty, the same on every rank; None if it has none.
        norm: the norm of the sum of all ranks' gradients, before clipping, (1,).
        own_norm: the norm of this rank's own gradients, (1,).
    """

    step: int
    count: int
    samples: int
    sums: torch.Tensor
    penalty: torch.Tensor | None
    norm: torch.Tensor
    own_norm: torch.Tensor
