"""The call to time of a simulator that torch differentiates."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ketscale.bench.cases import Call, Case
from ketscale.engines.circuits.circuit import Angles


def torch_call(case: Case, expval: Callable[[Angles], torch.Tensor], device: torch.device) -> Call:
    """The loss of `expval` and its gradients by torch's autograd; `expval` gives real (batch, words)."""
    inputs, weights, coefficients = (
        torch.tensor(part, device=device) for part in (case.inputs, case.weights, case.coefficients)
    )
    angles = Angles(inputs, weights)
    # autograd refuses a tensor that nothing depends on, such as weights of shape (0,).
    leaves = [tensor.requires_grad_() for tensor in angles if tensor.numel()]

    def call() -> tuple[torch.Tensor, ...]:
        loss = (expval(angles) * coefficients).sum()
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return call
