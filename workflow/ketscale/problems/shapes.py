"""Checks the shape of a model's inputs, once in each call."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.errors import UserError


def check_inputs(model: nn.Module, inputs: torch.Tensor, *sample: int) -> None:
    """Raise UserError unless `inputs` are a tensor of shape (batch, *sample)."""
    if not isinstance(inputs, torch.Tensor):
        raise UserError(
            f"{type(model).__name__} takes a torch tensor, not {type(inputs).__name__}: use torch.as_tensor"
        )
    if inputs.shape[1:] != sample:
        shape = ", ".join(map(str, ("batch", *sample)))
        raise UserError(
            f"{type(model).__name__} takes inputs ({shape}), not {tuple(inputs.shape)}: "
            "give it such a batch, or build it with other `inputs`"
        )
